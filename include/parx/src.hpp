// The compiled form of parx: what is no template and long, or needs further headers, once in a
// program instead of in every file.
//
//   g++ -DPARX_SEPARATE_COMPILATION ...      for every file of the program, and in one of them
//   #include <parx/src.hpp>
//
// The CMake target parx::parx is that file, ready made. Without the definition (the target
// parx::header_only) parx needs no library and behaves the same; objects of the two forms do not
// link (core/abi.hpp).
//
// What moves, by one convention: x.hpp declares, detail/x_impl.hpp beside it defines, each function
// marked PARX_INLINE, and x.hpp ends with an include of x_impl.hpp unless PARX_SEPARATE_COMPILATION
// is set. So what only the definitions need is not read. Short functions that need no further
// header stay in x.hpp, inline: a second file would cost a reader more than it saves a compiler.
// <chapter>/src.hpp lists what a chapter compiles: a new part joins by a line there, a new chapter
// by a line here.
#pragma once

#include <parx/core/version.hpp>  // first: what compiler parx needs

#ifndef PARX_SEPARATE_COMPILATION
#error "parx/src.hpp is for programs whose files are all compiled with -DPARX_SEPARATE_COMPILATION"
#endif

#include <parx/autograd/src.hpp>
#include <parx/checkpoint/src.hpp>
#include <parx/comm/src.hpp>
#include <parx/core/src.hpp>
#include <parx/data/src.hpp>
#include <parx/ddp/src.hpp>
#include <parx/fsdp/src.hpp>
#include <parx/launch/src.hpp>
#include <parx/mesh/src.hpp>
#include <parx/nn/src.hpp>
#include <parx/optim/src.hpp>
#include <parx/parallel/src.hpp>
#include <parx/pipeline/src.hpp>
#include <parx/plan/src.hpp>
#include <parx/reduction/src.hpp>
#include <parx/tensor/src.hpp>
#include <parx/tensor_parallel/src.hpp>
#include <parx/trace/src.hpp>
#include <parx/train/src.hpp>
#include <parx/trees/src.hpp>
#include <parx/types/src.hpp>
