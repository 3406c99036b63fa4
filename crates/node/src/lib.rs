//! The node program: joins engine, dataplane, net and agent.
