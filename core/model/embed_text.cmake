# cmake -DOUTPUT=class_fields.inc -DFILE=class_fields.txt -P embed_text.cmake
#
# Writes the text as one string literal.

file(READ ${FILE} text)
file(WRITE ${OUTPUT} "R\"text(${text})text\"\n")
