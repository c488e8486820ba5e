# A component is a folder of sources that may include headers of the components that it
# uses. A source that includes a header of any other component does not compile.
# docs/architecture.md lists the components.

# posenc_headers(NAME FOLDER [HEADERS ...] [USES ...] [LIBS ...])
#
# Adds the interface library posenc_NAME. A target that links it can include the
# headers of FOLDER (or only HEADERS), of the components in USES, and of LIBS. The
# library's include path is a folder that contains only a link to FOLDER.
function(posenc_headers name folder)
  cmake_parse_arguments(arg "" "" "HEADERS;USES;LIBS" ${ARGN})
  set(path ${PROJECT_BINARY_DIR}/components/${name})
  file(REMOVE_RECURSE ${path})
  if(arg_HEADERS)
    list(TRANSFORM arg_HEADERS PREPEND ${folder}/ OUTPUT_VARIABLE links)
  else()
    set(links ${folder})
  endif()
  foreach(link IN LISTS links)
    cmake_path(GET link PARENT_PATH parent)
    file(MAKE_DIRECTORY ${path}/${parent})
    file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${link} ${path}/${link} SYMBOLIC)
  endforeach()
  add_library(posenc_${name} INTERFACE)
  target_include_directories(posenc_${name} INTERFACE ${path})
  list(TRANSFORM arg_USES PREPEND posenc_)
  target_link_libraries(posenc_${name} INTERFACE ${arg_USES} ${arg_LIBS})
endfunction()

# posenc_component(NAME FOLDER PRECOMPILED TARGET SOURCES ... [HEADERS ...]
#                  [USES ...] [LIBS ...])
#
# Adds the interface library posenc_NAME, as posenc_headers does, and the object
# library posenc_NAME_objects of the SOURCES in FOLDER. These sources can include
# all headers of FOLDER. `ninja posenc_NAME_objects` compiles only this component.
# PRECOMPILED is the target of the precompiled headers.
function(posenc_component name folder)
  cmake_parse_arguments(arg "" "PRECOMPILED" "SOURCES;HEADERS;USES;LIBS" ${ARGN})
  posenc_headers(${name} ${folder} HEADERS ${arg_HEADERS} USES ${arg_USES} LIBS
                 ${arg_LIBS})
  set(objects posenc_${name}_objects)
  list(TRANSFORM arg_SOURCES PREPEND ${PROJECT_SOURCE_DIR}/${folder}/
       REGEX "^[^/]+$")
  add_library(${objects} OBJECT ${arg_SOURCES})
  target_compile_features(${objects} PRIVATE cxx_std_20)
  target_precompile_headers(${objects} REUSE_FROM ${arg_PRECOMPILED})
  # Keeps GCC's garbage collector from searching the precompiled headers. The search
  # would take 8 % of the compile time and free only about 50 MB.
  target_compile_options(
    ${objects} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wshadow -Wconversion
                       --param=ggc-min-heapsize=524288>)
  target_link_libraries(${objects} PRIVATE posenc_${name} posenc_warnings)
  if(arg_HEADERS)
    posenc_headers(${name}_inside ${folder})
    target_link_libraries(${objects} PRIVATE posenc_${name}_inside)
  endif()
endfunction()

# posenc_archive(TARGET COMPONENT ...): a static library of the components'
# objects.
function(posenc_archive target)
  list(TRANSFORM ARGN REPLACE "(.+)" "$<TARGET_OBJECTS:posenc_\\1_objects>"
       OUTPUT_VARIABLE objects)
  add_library(${target} STATIC ${objects})
endfunction()
