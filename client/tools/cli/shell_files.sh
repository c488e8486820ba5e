#!/usr/bin/env bash
# shell_files.sh POSENC FOLDER: writes the manual page of posenc, and its completion for
# bash, zsh and fish. All come from the text of --help.
set -euo pipefail

posenc=$1 folder=$2
unset POSENC_SERVER
mkdir -p "$folder"

# CLI11 2.5 and later capitalise headings. CLI11 2.6 indents flags by ten spaces.
commands() { "$posenc" --help | sed -nE '/^subcommands:/I,$ s/^  ([a-z]+) +(.*)/\1 \2/p'; }
flags() {
  "$posenc" "$@" --help | sed -nE 's/^(  |          )((-h, *)?--[a-z0-9-]+).*/\2/p' |
    grep -oE -- '--[a-z0-9-]+' | tr '\n' ' '
}
names=$(commands | cut -d' ' -f1 | tr '\n' ' ')
globals=$(flags)

# Writes a branch of a shell's `case` for each command, with the words that may
# follow the command.
cases() {
  for name in $names; do
    echo "    $name) words='$(flags "$name")$globals' ;;"
  done
}

cat >"$folder/posenc.bash" <<END
_posenc() {
  local word words='$names$globals' current=\${COMP_WORDS[COMP_CWORD]}
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case \$word in
$(cases)
    *) continue ;;
    esac
    [[ \$current == -* ]] || return  # the name of a file
    break
  done
  mapfile -t COMPREPLY < <(compgen -W "\$words" -- "\$current")
}
complete -o default -F _posenc posenc
END

cat >"$folder/_posenc" <<END
#compdef posenc
local word before=(\${words[2,CURRENT-1]})
local words='$names$globals'
for word in \$before; do
  case \$word in
$(cases)
    *) continue ;;
  esac
  [[ \$PREFIX == -* ]] || { _files; return; }
  break
done
compadd -- \${=words}
END

{
  for flag in $globals; do echo "complete -c posenc -l ${flag#--}"; done
  commands | while read -r name text; do
    echo "complete -c posenc -n __fish_use_subcommand -f -a $name -d \"$text\""
    for flag in $(flags "$name"); do
      echo "complete -c posenc -n '__fish_seen_subcommand_from $name' -l ${flag#--}"
    done
  done
} >"$folder/posenc.fish"

# The text of --help in the macros of man(7). troff interprets '\' anywhere, and
# '.' and "'" at the beginning of a line; it would print '-' as a hyphen.
page() {
  "$posenc" "$@" --help | sed 's/\\/\\e/g; s/-/\\-/g' | awk '
    /^Examples?:$/ { print ".PP\n.EX"; example = 1; next }
    example && /^$/ { print ".EE"; example = 0 }
    example { print "\\&" $0; next }
    /^  [^ ]/ || /^          \\-/ {
      sub(/^ +/, ""); at = match($0, /  +/)
      print ".TP\n.B " (at ? substr($0, 1, at - 1) : $0)
      if (at) print "\\&" substr($0, at + RLENGTH)
      next
    }
    /^ +/ { sub(/^ +/, ""); print "\\&" $0; next }
    /:$/ { print ".PP\n.B " $0; next }
    /./ { print ".PP\n\\&" $0 }'
}
{
  printf '.TH POSENC 1 "" "posenc %s" "User Commands"\n' "$("$posenc" --version)"
  printf '.SH NAME\nposenc \\- positional encodings from the command line\n.SH DESCRIPTION\n'
  page
  echo ".SH COMMANDS"
  for name in $names; do
    echo ".SS posenc $name"
    page "$name"
  done
} >"$folder/posenc.1"
