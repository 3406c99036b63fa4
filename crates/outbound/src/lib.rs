//! Outbound HTTP requests of services.
