//! What a service author sees.
