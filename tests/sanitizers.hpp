// Which sanitizer a test is compiled with: under one, times and memory are not the library's own.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define PARX_TEST_ADDRESS_SANITIZER 1
#endif
#if defined(__SANITIZE_THREAD__)
#define PARX_TEST_THREAD_SANITIZER 1
#endif
#if defined(__has_feature)  // clang
#if __has_feature(address_sanitizer)
#define PARX_TEST_ADDRESS_SANITIZER 1
#endif
#if __has_feature(thread_sanitizer)
#define PARX_TEST_THREAD_SANITIZER 1
#endif
#endif

namespace parx_test {

#ifdef PARX_TEST_ADDRESS_SANITIZER
inline constexpr bool address_sanitizer = true;
#else
inline constexpr bool address_sanitizer = false;
#endif
#ifdef PARX_TEST_THREAD_SANITIZER
inline constexpr bool thread_sanitizer = true;
#else
inline constexpr bool thread_sanitizer = false;
#endif
inline constexpr bool sanitized = address_sanitizer || thread_sanitizer;

}  // namespace parx_test
