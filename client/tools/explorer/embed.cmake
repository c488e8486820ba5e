# Writes a C++ source with the explorer's HTML, its style, and its scripts in
# their order.
#
# cmake -DFOLDER=page -DOUTPUT=page_text.cc -P embed.cmake
file(READ ${FOLDER}/explorer.html html)
file(READ ${FOLDER}/explorer.css style)
set(script "")
foreach(name server gguf figures panels explorer)
  file(READ ${FOLDER}/${name}.js text)
  string(APPEND script "${text}")
endforeach()
file(
  WRITE ${OUTPUT}
  "namespace posenc::explorer {\n\n"
  "extern const char kPageHtml[] = R\"PAGE(${html})PAGE\";\n"
  "extern const char kPageStyle[] = R\"PAGE(${style})PAGE\";\n"
  "extern const char kPageScript[] = R\"PAGE(${script})PAGE\";\n\n"
  "}  // namespace posenc::explorer\n")
