# What is compiled once for a program and for the tests of its parts: every .cpp below tools/<name>/ but
# main.cpp belongs to the library <name>_parts, which like the program runs on any processor of the
# architecture.
include_guard()

# parx_keep_commas(target): a path of --needs and a value of --env may have commas in them.
function(parx_keep_commas target)
  target_compile_definitions(${target} PRIVATE "CXXOPTS_VECTOR_DELIMITER='\\0'")
endfunction()

# parx_add_parts(name): UNITY_BUILD, since most of the files include the same headers.
function(parx_add_parts name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/tools/${name}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/main[.]cpp$")
  add_library(${name}_parts STATIC EXCLUDE_FROM_ALL ${sources})
  set_target_properties(${name}_parts PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
  target_include_directories(${name}_parts PUBLIC ${PROJECT_SOURCE_DIR}/examples)
  target_link_libraries(${name}_parts PUBLIC parx_portable_program parx::core_portable
                                               cxxopts::cxxopts)
  parx_keep_commas(${name}_parts)
  parx_compile_quickly(${name}_parts)
endfunction()

# parxrun's supervisor of processes is written with Boost.Asio. Nothing else in parx needs Boost.
find_package(Boost 1.81 CONFIG REQUIRED)
parx_add_parts(parxrun)
target_link_libraries(parxrun_parts PUBLIC Boost::headers)
parx_add_parts(parx_slurm)

# The report of a run, which trainers write themselves by --report. parx_report compiles it anew, to run
# on any processor.
file(GLOB run_report_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/common/report/*.cpp)
add_library(run_report STATIC EXCLUDE_FROM_ALL ${run_report_sources})
target_include_directories(run_report PUBLIC ${PROJECT_SOURCE_DIR}/examples)
target_link_libraries(run_report PRIVATE parx_program parx::parx)
