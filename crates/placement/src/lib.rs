//! Placement of instances on nodes.
