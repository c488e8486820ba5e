# cmake -DOUTPUT=published_configs.inc -DFILE=published.jsonl -P embed_text.cmake
#
# Writes the text as one string literal.

file(READ ${FILE} text)
file(WRITE ${OUTPUT} "R\"text(${text})text\"\n")
