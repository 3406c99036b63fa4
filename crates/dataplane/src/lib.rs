//! What one worker core does with messages, as a state machine.
