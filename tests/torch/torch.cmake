# torch/<name>: LibTorch's modules under parx. By the compiler of the build, since clang does not read
# PyTorch 1.x's headers as C++20.
set(here ${CMAKE_CURRENT_LIST_DIR})
# The module is compiled by the test. Its library would take longer and is there, but for one with
# sanitizers, which Python does not load.
set(library "")
if(NOT CMAKE_CXX_FLAGS MATCHES sanitize)
  set(library $<TARGET_FILE:parx::comm_portable>:$<TARGET_FILE:parx::core_portable>
              "-D$<JOIN:$<TARGET_PROPERTY:parx::comm_portable,INTERFACE_COMPILE_DEFINITIONS>, -D>")
  parx_needed_by(torch parx::comm_portable)
endif()
add_test(NAME torch/python COMMAND bash ${here}/python.sh ${PROJECT_SOURCE_DIR}/examples/torch/python
                                   ${PROJECT_BINARY_DIR}/parx_torch ${library})
set_tests_properties(torch/python PROPERTIES TIMEOUT 300 LABELS torch SKIP_RETURN_CODE 77 PROCESSORS 2)
find_package(Torch QUIET)
if(NOT TORCH_FOUND)
  add_test(NAME torch/ddp COMMAND bash ${here}/no_torch.sh)
  set_tests_properties(torch/ddp PROPERTIES LABELS torch SKIP_RETURN_CODE 77)
  return()
endif()
if(PARX_TEST_ALL)
  add_test(NAME torch/examples
           COMMAND bash ${here}/examples.sh ${PROJECT_SOURCE_DIR} ${CMAKE_CXX_COMPILER})
  set_tests_properties(torch/examples PROPERTIES TIMEOUT 900 LABELS torch PROCESSORS 2)
endif()
parx_batch_source(source test_torch  # reads PyTorch once
                  ${here}/ddp_test.cpp ${here}/file_test.cpp ${here}/zero_test.cpp)
add_executable(test_torch ${source})
target_link_libraries(test_torch PRIVATE parx_program parx::parx ${TORCH_LIBRARIES}
                                         Boost::unit_test_framework)
target_include_directories(test_torch PRIVATE ${PROJECT_SOURCE_DIR}/tests)
target_include_directories(test_torch SYSTEM PRIVATE ${TORCH_INCLUDE_DIRS})
target_compile_definitions(test_torch PRIVATE BOOST_TEST_DYN_LINK BOOST_TEST_MODULE=parx)
target_compile_options(test_torch PRIVATE -O0 -Wno-subobject-linkage)
set_target_properties(test_torch PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
parx_needed_by(torch test_torch)
add_test(NAME torch/ddp COMMAND test_torch)
set_tests_properties(torch/ddp PROPERTIES TIMEOUT 120 LABELS torch COST 2 PROCESSORS 4
                     ENVIRONMENT "OMP_NUM_THREADS=1;${recorder_directory}")
