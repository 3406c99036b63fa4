/* The shortest service in C: it answers with what it got.
 * SPDX-License-Identifier: Apache-2.0
 *
 * clang-19 --target=wasm32 -O3 -nostdlib -ffreestanding -mbulk-memory -msimd128 \
 *     -Wl,--no-entry,--strip-all -o echo.wasm echo.c
 */
#include "e3.h"

E3_SERVICE(32 * 1024);

int32_t e3_handle(int32_t len)
{
    return e3_reply(0, e3_request, (size_t)len);
}
