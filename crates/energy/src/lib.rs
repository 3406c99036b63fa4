//! Power models and meters.
