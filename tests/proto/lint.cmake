# Compiles FILES below ROOT to the descriptor set SET and lints it. If the file
# EXPECTED exists, its lines are the faults that must be found; otherwise there
# must be none.
execute_process(
  COMMAND ${PROTOC} -I ${ROOT} --include_source_info --include_imports
          --descriptor_set_out=${SET} ${FILES}
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(
  COMMAND ${LINT} ${SET} ${RELEASED}
  RESULT_VARIABLE result
  OUTPUT_VARIABLE output)
if(EXISTS ${EXPECTED})
  file(READ ${EXPECTED} expected)
  if(NOT result EQUAL 1 OR NOT output STREQUAL expected)
    message(FATAL_ERROR "exit ${result}\n${output}\nexpected 1\n${expected}")
  endif()
elseif(NOT result EQUAL 0)
  message(FATAL_ERROR "${output}")
endif()
