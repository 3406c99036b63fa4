//! Messages of the IoT applications.
