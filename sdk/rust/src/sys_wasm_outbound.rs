//! The imports of docs/abi.md for outbound requests and topics; sound for the reason that `sys_wasm.rs` gives.

#![allow(unsafe_code)]

mod raw {
    #[link(wasm_import_module = "e3")]
    unsafe extern "C" {
        pub fn outbound_service(
            name: *const u8,
            name_len: usize,
            key: *const u8,
            key_len: usize,
            service: *const u8,
            service_len: usize,
            to: *const u8,
            to_len: usize,
            ptr: *const u8,
            len: usize,
            timeout: i64,
        ) -> i32;
        pub fn outbound_application(
            name: *const u8,
            name_len: usize,
            key: *const u8,
            key_len: usize,
            application: *const u8,
            application_len: usize,
            to: *const u8,
            to_len: usize,
            ptr: *const u8,
            len: usize,
            timeout: i64,
        ) -> i32;
        pub fn outbound_http(
            name: *const u8,
            name_len: usize,
            key: *const u8,
            key_len: usize,
            method: *const u8,
            method_len: usize,
            url: *const u8,
            url_len: usize,
            headers: *const u8,
            headers_len: usize,
            ptr: *const u8,
            len: usize,
            timeout: i64,
        ) -> i32;
        pub fn answer() -> i64;
        pub fn publish(
            topic: *const u8,
            topic_len: usize,
            key: *const u8,
            key_len: usize,
            ptr: *const u8,
            len: usize,
        ) -> i32;
        pub fn topic(out: *mut u8, cap: usize) -> i32;
    }
}

pub(crate) fn outbound_service(
    name: &str,
    key: &[u8],
    service: &str,
    to: &[u8],
    payload: &[u8],
    timeout: i64,
) -> i32 {
    // SAFETY: live slices.
    unsafe {
        raw::outbound_service(
            name.as_ptr(),
            name.len(),
            key.as_ptr(),
            key.len(),
            service.as_ptr(),
            service.len(),
            to.as_ptr(),
            to.len(),
            payload.as_ptr(),
            payload.len(),
            timeout,
        )
    }
}

pub(crate) fn outbound_application(
    name: &str,
    key: &[u8],
    application: &str,
    to: &[u8],
    payload: &[u8],
    timeout: i64,
) -> i32 {
    // SAFETY: live slices.
    unsafe {
        raw::outbound_application(
            name.as_ptr(),
            name.len(),
            key.as_ptr(),
            key.len(),
            application.as_ptr(),
            application.len(),
            to.as_ptr(),
            to.len(),
            payload.as_ptr(),
            payload.len(),
            timeout,
        )
    }
}

pub(crate) fn outbound_http(
    name: &str,
    key: &[u8],
    method: &str,
    url: &str,
    headers: &[u8],
    body: &[u8],
    timeout: i64,
) -> i32 {
    // SAFETY: live slices.
    unsafe {
        raw::outbound_http(
            name.as_ptr(),
            name.len(),
            key.as_ptr(),
            key.len(),
            method.as_ptr(),
            method.len(),
            url.as_ptr(),
            url.len(),
            headers.as_ptr(),
            headers.len(),
            body.as_ptr(),
            body.len(),
            timeout,
        )
    }
}

pub(crate) fn answer() -> i64 {
    // SAFETY: takes no memory.
    unsafe { raw::answer() }
}

pub(crate) fn publish(topic: &str, key: &[u8], payload: &[u8]) -> i32 {
    // SAFETY: live slices.
    unsafe {
        raw::publish(
            topic.as_ptr(),
            topic.len(),
            key.as_ptr(),
            key.len(),
            payload.as_ptr(),
            payload.len(),
        )
    }
}

pub(crate) fn topic(out: &mut [u8]) -> i32 {
    // SAFETY: a live slice.
    unsafe { raw::topic(out.as_mut_ptr(), out.len()) }
}
