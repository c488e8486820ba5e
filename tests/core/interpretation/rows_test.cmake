# cmake -DROWS=core/interpretation/rows -DFOLDER=scratch -P rows_test.cmake
#
# Rows that violate the schema stop the build, with file, row and field.

cmake_minimum_required(VERSION 3.25)

# Compiles `rows` as a table; `error` is the expected error, empty for valid
# rows.
function(expect table rows error)
  set(file ${FOLDER}/rows.json)
  file(WRITE ${file} "{\"rows\": [${rows}]}")
  execute_process(
    COMMAND ${CMAKE_COMMAND} -DTABLE=${table} -DFILES=${file}
            -DSCHEMA=${ROWS}/schema.json -DOUTPUT=${FOLDER}/rows.inc -P
            ${CMAKE_CURRENT_LIST_DIR}/../../../cmake/compile_rows.cmake
    RESULT_VARIABLE result
    ERROR_VARIABLE said)
  string(REGEX REPLACE "[ \n]+" " " said "${said}")
  if(error STREQUAL "")
    if(NOT result EQUAL 0)
      message(FATAL_ERROR "${rows} is refused: ${said}")
    endif()
  elseif(result EQUAL 0)
    message(FATAL_ERROR "${rows} is taken; it must be refused: ${error}")
  else()
    string(FIND "${said}" "${error}" at)
    if(at EQUAL -1)
      message(FATAL_ERROR "of ${rows} is said ${said}, and not ${error}")
    endif()
  endif()
endfunction()

expect(Family [[{"model_types": ["a", "b"], "theta": 1e6, "width": "mla"}]] "")
file(READ ${FOLDER}/rows.inc made)
set(wanted
    "{.model_types = \"a b\", .width = RotaryWidth::kMla, .theta = 1000000, },\n"
)
string(REPLACE "1000000.0" "1000000" made "${made}")
if(NOT made STREQUAL wanted)
  message(FATAL_ERROR "${made} was made, and not ${wanted}")
endif()

expect(Family [[{"model_types": ["a"], "thetta": 1}]]
       "row 0 has a field that Family has not")
expect(Family [[{"model_types": ["a"], "width": "wide"}]]
       "row 0: width is wide; known: ")
expect(Family [[{"model_types": ["a"], "theta": "1e6"}]]
       "row 0: theta is of type STRING; it must be NUMBER")
expect(Family [[{"model_types": ["a"], "head_dim": 64.5}]]
       "row 0: head_dim is 64.5; it must be whole")
expect(Family [[{"model_types": ["a"], "reverse": 1}]]
       "row 0: reverse is of type NUMBER; it must be BOOLEAN")
expect(Family [[{"model_types": ["a b"]}]]
       "row 0: model_types has \"a b\", which is no word")
expect(Family [[{"model_types": "a"}]]
       "row 0: model_types is of type STRING; it must be ARRAY")
expect(Family [[{"model_types": ["a"], "sections": [1, 2.5, 3]}]]
       "row 0: sections has 2.5; it must be whole")
expect(Family [[{"model_types": ["a"], "rope_parameters": "{'rope_theta':}"}]]
       "row 0: rope_parameters is no JSON")
expect(Family [[{"model_types": ["a"]}, {"model_types": ["b", "a"]}]]
       "row 1: a is in ")
expect(Family [[{"model_types": ["a"], "kinds": [{"type": "x", "base": 1}]}]]
       "row 0: kinds 0 has a field that LayerKind has not")
