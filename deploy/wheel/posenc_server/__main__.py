from . import run

run("posencd")
