# Included by ggml's project() (CMAKE_PROJECT_ggml_INCLUDE): the arithmetic is compiled as a release is, and file
# by file, whatever the rest of the host gets.
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")
set(CMAKE_UNITY_BUILD OFF)
