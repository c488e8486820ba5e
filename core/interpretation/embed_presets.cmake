# cmake -DOUTPUT=preset_data.inc "-DFILES=a.json;b.json" -P embed_presets.cmake
#
# Writes {"<name>", R"json(<text>)json"}, for each file, sorted by name.

set(lines "")
list(TRANSFORM FILES REPLACE "\\.json$" "")
list(SORT FILES)
foreach(file IN LISTS FILES)
  get_filename_component(name ${file} NAME)
  file(READ ${file}.json text)
  string(APPEND lines "{\"${name}\", R\"json(${text})json\"},\n")
endforeach()
file(WRITE ${OUTPUT} "${lines}")
