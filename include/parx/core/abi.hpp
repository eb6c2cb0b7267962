// The ABI tag: an inline namespace around all of parx that names what an object file was compiled
// for.
//
// Vector width decides the layout of some types and the body of many inline functions. A linker
// that met the same name in two objects would keep one of the two and run it for both. With the tag
// in each name, objects compiled with different -march flags each keep their own functions; where
// one hands parx's types to another, the link fails on a name such as parx::v0_1_avx2::tensor,
// which says what differs. In source code the tag is never written: parx::tensor finds it.
//
// The form is part of the tag, too. Header-only is the default. With PARX_SEPARATE_COMPILATION
// headers only declare the functions marked PARX_INLINE; parx/src.hpp defines them, in one object
// file of the program or in the library parx::parx. Where objects of both forms hand each other
// parx's types, the link fails on parx::v0_1_avx2_compiled::...
#pragma once

#include <parx/core/version.hpp>

// One of three levels of vector instructions, the same for every header.
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__FMA__) && defined(__F16C__)
#define PARX_VECTORS_AVX512 1
#define PARX_ABI_VECTORS avx512
#define PARX_VECTORS_LEVEL 2
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define PARX_VECTORS_AVX2 1
#define PARX_ABI_VECTORS avx2
#define PARX_VECTORS_LEVEL 1
#else
#define PARX_ABI_VECTORS baseline
#define PARX_VECTORS_LEVEL 0
#endif

// The build of the library that a program links says for which level it was compiled.
#if defined(PARX_LIBRARY_VECTORS)
#if PARX_LIBRARY_VECTORS == 2 && PARX_VECTORS_LEVEL != 2
#error "parx's library is compiled for AVX-512, this file is not: use the same -march"
#elif PARX_LIBRARY_VECTORS == 1 && PARX_VECTORS_LEVEL != 1
#error "parx's library is compiled for AVX2, this file is not: use the same -march"
#elif PARX_LIBRARY_VECTORS == 0 && PARX_VECTORS_LEVEL != 0
#error "parx's library has no vector flags: leave -march out here, or build it with PARX_NATIVE=ON"
#endif
#endif

#if defined(PARX_SEPARATE_COMPILATION)
#define PARX_INLINE
#define PARX_ABI_FORM _compiled
#else
#define PARX_INLINE inline
#define PARX_ABI_FORM
#endif

#define PARX_ABI_JOIN(major, minor, vectors, form) v##major##_##minor##_##vectors##form
#define PARX_ABI_NAME(major, minor, vectors, form) PARX_ABI_JOIN(major, minor, vectors, form)
#define PARX_ABI \
  PARX_ABI_NAME(PARX_VERSION_MAJOR, PARX_VERSION_MINOR, PARX_ABI_VECTORS, PARX_ABI_FORM)

// The tag as a string literal, to find it in demangled names.
#define PARX_ABI_QUOTED(name) #name
#define PARX_ABI_TEXT_OF(name) PARX_ABI_QUOTED(name)
#define PARX_ABI_TEXT PARX_ABI_TEXT_OF(PARX_ABI)
