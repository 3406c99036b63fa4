/* The service ABI, version 1, for C (docs/abi.md). SPDX-License-Identifier: Apache-2.0
 *
 * A service includes this header once, invokes E3_SERVICE(capacity), and defines
 *
 *     int32_t e3_init(void);            optional: opens collections and channels; 0 = ready
 *     int32_t e3_handle(int32_t len);   0 = commit, anything else = fail the attempt
 *
 * The request's payload is in e3_request[0 .. len). Pointers are into the module's own memory;
 * handles stay valid for the instance's life. Build:
 *
 *     clang-19 --target=wasm32 -O3 -nostdlib -ffreestanding -mbulk-memory -msimd128 \
 *         -Wl,--no-entry,--strip-all -o echo.wasm echo.c
 */
#ifndef E3_H
#define E3_H

#include <stddef.h>
#include <stdint.h>

#define E3_ABI_VERSION 1

/* Errors of the calls that write, of timers, of calls of services, and of the accelerators. */
enum {
    E3_NO_HANDLE = -1,   /* no such handle */
    E3_BOUND = -2,       /* the request's bound on outputs, writes or bytes is reached */
    E3_WRONG_KIND = -3,  /* the collection is of another kind */
    E3_INDEX = -4,       /* the index is out of range */
    E3_ABSENT = -5,      /* the node does not have the accelerator */
    E3_LENGTH = -6,      /* a length that is not allowed */
    E3_TIME = -7,        /* a time more than a year ahead */
    E3_CRON = -8,        /* no cron expression */
    E3_SLOT = -9,        /* a key of another slot than the request's */
    E3_UNAVAILABLE = -10, /* no node serves the shard that was called */
    E3_TIMED_OUT = -11,  /* no answer to a call in time */
    E3_CALL_FAILED = -12, /* the called handler failed */
    E3_URL = -20,        /* no address, method or header field */
    E3_NOT_ALLOWED = -21 /* the manifest does not allow to ask this service or host, or to publish on this topic */
};

enum { E3_ERROR = 1, E3_WARN = 2, E3_INFO = 3, E3_DEBUG = 4 };

#define E3_IMPORT(name) __attribute__((import_module("e3"), import_name(#name)))
#define E3_EXPORT(name) __attribute__((export_name(#name)))

/* The current request. */
E3_IMPORT(now) int64_t e3_now(void);
E3_IMPORT(request_id) void e3_request_id(uint8_t out[16]);
E3_IMPORT(request_key) int32_t e3_request_key(void *out, size_t cap);
E3_IMPORT(request_slot) int32_t e3_request_slot(void);
E3_IMPORT(request_edge) int32_t e3_request_edge(void);

/* Outputs. */
E3_IMPORT(reply) int32_t e3_reply(int32_t status, const void *ptr, size_t len);
E3_IMPORT(channel) int32_t e3_channel(const char *name, size_t name_len);
E3_IMPORT(send) int32_t e3_send(int32_t channel, const void *key, size_t key_len,
                                const void *ptr, size_t len);

/* Timers, of services with state: requests of the service to itself at a later time. An empty key stands
 * for the request's. e3_request_edge returns E3_EDGE_TIMER for such a request, e3_timer_name its name, or
 * -1 for any other. */
enum { E3_EDGE_TIMER = -2 };
E3_IMPORT(timer_set) int32_t e3_timer_set(const char *name, size_t name_len,
                                          const void *key, size_t key_len, int64_t at_ns,
                                          const void *ptr, size_t len);
E3_IMPORT(timer_cron) int32_t e3_timer_cron(const char *name, size_t name_len,
                                            const void *key, size_t key_len,
                                            const char *cron, size_t cron_len,
                                            const void *ptr, size_t len);
E3_IMPORT(timer_cancel) int32_t e3_timer_cancel(const char *name, size_t name_len,
                                                const void *key, size_t key_len);
E3_IMPORT(timer_name) int32_t e3_timer_name(char *out, size_t cap);

/* Outbound requests, of services with state. The answer comes as a request to the service itself:
 * e3_request_edge returns E3_EDGE_ANSWER, e3_timer_name the name, e3_answer the outcome in the high 32
 * bits and the status in the low ones (-1 for any other request), and the payload is the content. `to` is the
 * key that routes the request, the time-out at most a day. Header fields are packed as u32 name_len,
 * u32 value_len, name, value. */
enum { E3_EDGE_ANSWER = -4 };
enum {
    E3_DONE = 0, E3_OVERLOADED = 1, E3_EXPIRED = 2, E3_FAILED = 3, E3_REJECTED = 4,
    E3_CONFLICT = 5, E3_UNKNOWN = 6
};
E3_IMPORT(outbound_service) int32_t e3_outbound_service(const char *name, size_t name_len,
                                                        const void *key, size_t key_len,
                                                        const char *service, size_t service_len,
                                                        const void *to, size_t to_len,
                                                        const void *ptr, size_t len,
                                                        int64_t timeout_ns);
E3_IMPORT(outbound_application) int32_t e3_outbound_application(
    const char *name, size_t name_len, const void *key, size_t key_len,
    const char *application, size_t application_len, const void *to, size_t to_len,
    const void *ptr, size_t len, int64_t timeout_ns);
E3_IMPORT(outbound_http) int32_t e3_outbound_http(const char *name, size_t name_len,
                                                  const void *key, size_t key_len,
                                                  const char *method, size_t method_len,
                                                  const char *url, size_t url_len,
                                                  const void *headers, size_t headers_len,
                                                  const void *ptr, size_t len, int64_t timeout_ns);
E3_IMPORT(answer) int64_t e3_answer(void);

/* Topics: a service with state publishes, and the services that are subscribed get each publication as a
 * request: e3_request_edge returns E3_EDGE_TOPIC, and e3_topic copies "APPLICATION/TOPIC" and returns its
 * length, or -1 for any other request. */
enum { E3_EDGE_TOPIC = -5 };
E3_IMPORT(publish) int32_t e3_publish(const char *topic, size_t topic_len,
                                      const void *key, size_t key_len, const void *ptr, size_t len);
E3_IMPORT(topic) int32_t e3_topic(char *out, size_t cap);

/* Calls of other services that the manifest names: the handler waits for the answer. e3_call returns its
 * length, e3_call_answer copies it. e3_request_edge returns E3_EDGE_CALL in the called service, whose
 * handler may read and must reply. */
enum { E3_EDGE_CALL = -3 };
E3_IMPORT(call) int32_t e3_call(const char *service, size_t service_len,
                                const void *key, size_t key_len, const void *ptr, size_t len);
E3_IMPORT(call_status) int32_t e3_call_status(void);
E3_IMPORT(call_answer) int32_t e3_call_answer(void *out, size_t cap);

/* Collections. A function with out and cap returns the full length; if that is more than cap,
 * nothing is copied. */
E3_IMPORT(collection) int32_t e3_collection(const char *name, size_t name_len);
E3_IMPORT(get) int32_t e3_get(int32_t coll, const void *key, size_t key_len, void *out, size_t cap);
E3_IMPORT(put) int32_t e3_put(int32_t coll, const void *key, size_t key_len,
                              const void *ptr, size_t len);
/* The key lives for ttl nanoseconds, more than 0. */
E3_IMPORT(put_ttl) int32_t e3_put_ttl(int32_t coll, const void *key, size_t key_len,
                                      const void *ptr, size_t len, int64_t ttl);
E3_IMPORT(delete) int32_t e3_delete(int32_t coll, const void *key, size_t key_len);
E3_IMPORT(scan) int32_t e3_scan(int32_t coll, const void *from, size_t from_len,
                                const void *to, size_t to_len, uint32_t limit, uint32_t reverse,
                                void *out, size_t cap);
E3_IMPORT(array_len) int64_t e3_array_len(int32_t coll, const void *key, size_t key_len);
E3_IMPORT(array_get) int32_t e3_array_get(int32_t coll, const void *key, size_t key_len,
                                          int64_t index, void *out, size_t cap);
E3_IMPORT(array_push) int32_t e3_array_push(int32_t coll, const void *key, size_t key_len,
                                            const void *ptr, size_t len);
/* Elements as uint32_t length, bytes. Returns the bytes written, to be read up to there: a length of
   UINT32_MAX says that there are no more, else go on from the next index. 0 = none left, -n = the
   first needs n bytes. */
E3_IMPORT(array_scan) int32_t e3_array_scan(int32_t coll, const void *key, size_t key_len,
                                            int64_t from, void *out, size_t cap);
E3_IMPORT(array_put) int32_t e3_array_put(int32_t coll, const void *key, size_t key_len,
                                          int64_t index, const void *ptr, size_t len);
E3_IMPORT(array_pop_front) int32_t e3_array_pop_front(int32_t coll, const void *key,
                                                      size_t key_len);
E3_IMPORT(counter_add) int64_t e3_counter_add(int32_t coll, const void *key, size_t key_len,
                                              int64_t delta);
E3_IMPORT(counter_get) int64_t e3_counter_get(int32_t coll, const void *key, size_t key_len);

/* Accelerators (docs/abi.md): in place, keys and pattern sets by handle. Fetch-and-add is
 * e3_counter_add. */
enum { E3_AES_CBC = 1, E3_AES_GCM = 2, E3_HMAC_SHA1 = 3, E3_HMAC_SHA256 = 4 };

E3_IMPORT(accel_key) int32_t e3_accel_key(int32_t kind, const void *key, size_t key_len);
E3_IMPORT(accel_drop) int32_t e3_accel_drop(int32_t handle);
E3_IMPORT(aes_cbc_encrypt) int32_t e3_aes_cbc_encrypt(int32_t key, const uint8_t iv[16],
                                                      void *ptr, size_t len);
E3_IMPORT(aes_cbc_decrypt) int32_t e3_aes_cbc_decrypt(int32_t key, const uint8_t iv[16],
                                                      void *ptr, size_t len);
E3_IMPORT(aes_gcm_seal) int32_t e3_aes_gcm_seal(int32_t key, const uint8_t nonce[12],
                                                const void *aad, size_t aad_len,
                                                void *ptr, size_t len, uint8_t tag[16]);
E3_IMPORT(aes_gcm_open) int32_t e3_aes_gcm_open(int32_t key, const uint8_t nonce[12],
                                                const void *aad, size_t aad_len,
                                                void *ptr, size_t len, const uint8_t tag[16]);
E3_IMPORT(hmac) int32_t e3_hmac(int32_t key, const void *ptr, size_t len, void *out, size_t cap);
E3_IMPORT(crc32) int64_t e3_crc32(uint32_t before, const void *ptr, size_t len);
E3_IMPORT(match_set) int32_t e3_match_set(const void *packed, size_t len);
E3_IMPORT(match_find) int32_t e3_match_find(int32_t set, const void *ptr, size_t len,
                                            void *out, size_t cap);

/* Assets, secrets, configuration, random bytes, log. */
E3_IMPORT(asset) int32_t e3_asset(const char *name, size_t name_len);
E3_IMPORT(asset_len) int64_t e3_asset_len(int32_t asset);
E3_IMPORT(asset_read) int32_t e3_asset_read(int32_t asset, int64_t offset, void *out, size_t cap);
/* "NAME@previous" is the value before the present one, until it is retired. */
E3_IMPORT(secret) int32_t e3_secret(const char *name, size_t name_len, void *out, size_t cap);
E3_IMPORT(config) int32_t e3_config(const char *name, size_t name_len, void *out, size_t cap);
/* At most 256 bytes that nobody can predict: 0, or E3_BOUND. */
E3_IMPORT(random) int32_t e3_random(void *out, size_t len);
E3_IMPORT(log) void e3_log(int32_t level, const char *ptr, size_t len);

/* What the service defines; what it defines is exported. e3_init is optional. */
E3_EXPORT(e3_init) int32_t e3_init(void);
E3_EXPORT(e3_handle) int32_t e3_handle(int32_t len);

/* The request buffer and the exports that describe it. */
#define E3_SERVICE(capacity)                                                                   \
    static _Alignas(16) uint8_t e3_request[capacity];                                          \
    E3_EXPORT(e3_abi_version) int32_t e3_abi_version(void) { return E3_ABI_VERSION; }          \
    E3_EXPORT(e3_request_buffer) int32_t e3_request_buffer(void)                               \
    {                                                                                          \
        return (int32_t)(uintptr_t)e3_request;                                                 \
    }                                                                                          \
    E3_EXPORT(e3_request_capacity) int32_t e3_request_capacity(void) { return (capacity); }    \
    _Static_assert((capacity) > 0, "the request buffer must not be empty")

#endif
