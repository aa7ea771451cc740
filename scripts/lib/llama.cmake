# Included by llama.cpp's project() (CMAKE_PROJECT_llama.cpp_INCLUDE) in a build that joins source files: this one
# specializes templates that the others in its group have used by then.
cmake_language(DEFER CALL set_source_files_properties common/json.cpp DIRECTORY common
  PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
