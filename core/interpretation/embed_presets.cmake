# cmake -DOUTPUT=preset_data.inc "-DFILES=a.json;b.json" -P embed_presets.cmake
#
# Writes {"<name>", R"json(<text>)json"}, for each file, sorted by name.

set(lines "")
foreach(file IN LISTS FILES)
  get_filename_component(name ${file} NAME)
  string(REGEX REPLACE "\\.json$" "" name "${name}")
  file(READ ${file} text)
  string(APPEND lines "{\"${name}\", R\"json(${text})json\"},\n")
endforeach()
file(WRITE ${OUTPUT} "${lines}")
