#!/bin/sh
# The image's bill of materials, SPDX 2.3 as JSON on stdout: the packages that its dpkg
# lists, and our programs.
#   sbom.sh VERSION SECONDS_SINCE_1970 ROOT [LIBRARIES PACKAGE...]
# LIBRARIES: the root whose PACKAGEs are linked into the programs.
set -eu

installed=$(mktemp)
listed=$(mktemp)
# shellcheck disable=SC2016 # dpkg-query's fields
format='${Package}\t${Version}\t${Architecture}\t${source:Package}\t${source:Version}\t${db:Status-Abbrev}\n'
# With a pipe, the failure of a query would not be noticed, and the bill would
# lack packages.
dpkg-query --admindir="$3/var/lib/dpkg" -W -f "$format" >"$listed"
version=$1 seconds=$2 root=$3
if [ $# -gt 3 ]; then
  libraries=$4
  shift 4
  dpkg-query --admindir="$libraries/var/lib/dpkg" -W -f "$format" "$@" >>"$listed"
fi
awk -F'\t' '$6 ~ /^ii/' "$listed" | LC_ALL=C sort -u >"$installed"
distro=$(. "$root/etc/os-release" && echo "$VERSION_CODENAME")
programs=$(cd "$root/usr/local/bin" && sha256sum posencd posenc posenc-load)
digest=$(cat "$installed" - <<EOT | sha256sum | cut -c 1-32
$programs
EOT
)

awk -F'\t' -v version="$version" -v created="$(date -u -d "@$seconds" +%Y-%m-%dT%H:%M:%SZ)" \
  -v distro="$distro" -v digest="$digest" -v programs="$programs" '
function purl(text) { gsub(/\+/, "%2B", text); gsub(/:/, "%3A", text); return text }
function package(id, name, release, supplier, extra) {
  printf "%s\n    {\"SPDXID\": \"SPDXRef-%s\", \"name\": \"%s\", \"versionInfo\": \"%s\", \"supplier\": \"%s\", \"downloadLocation\": \"NOASSERTION\", \"filesAnalyzed\": false, \"licenseDeclared\": \"%s\", \"licenseConcluded\": \"NOASSERTION\", \"copyrightText\": \"NOASSERTION\"%s}",
    separator, id, name, release, supplier, (id == "posenc") ? "Apache-2.0" : "NOASSERTION", extra
  separator = ","
}
BEGIN {
  printf "{\n  \"spdxVersion\": \"SPDX-2.3\",\n  \"dataLicense\": \"CC0-1.0\",\n  \"SPDXID\": \"SPDXRef-DOCUMENT\",\n"
  printf "  \"name\": \"posenc-%s\",\n  \"documentNamespace\": \"https://spdx.org/spdxdocs/posenc-%s-%s\",\n", version, version, digest
  printf "  \"creationInfo\": {\"created\": \"%s\", \"creators\": [\"Tool: dpkg-query\"]},\n  \"packages\": [", created
  package("posenc", "posenc", version, "NOASSERTION", "")
}
{
  id = "Package-" NR "-" $1
  gsub(/[^A-Za-z0-9.-]/, "-", id)
  ids[NR] = id
  extra = ", \"sourceInfo\": \"built from " $4 " " $5 "\", \"externalRefs\": [{\"referenceCategory\": \"PACKAGE-MANAGER\", \"referenceType\": \"purl\", \"referenceLocator\": \"pkg:deb/debian/" purl($1) "@" purl($2) "?arch=" $3 "&distro=" distro "\"}]"
  package(id, $1, $2, "Organization: Debian", extra)
}
END {
  printf "\n  ],\n  \"files\": ["
  count = split(programs, line, "\n")
  for (i = 1; i <= count; ++i) {
    split(line[i], part, " ")
    printf "%s\n    {\"SPDXID\": \"SPDXRef-File-%s\", \"fileName\": \"./usr/local/bin/%s\", \"checksums\": [{\"algorithm\": \"SHA256\", \"checksumValue\": \"%s\"}], \"licenseConcluded\": \"NOASSERTION\", \"copyrightText\": \"NOASSERTION\"}",
      ((i > 1) ? "," : ""), part[2], part[2], part[1]
  }
  printf "\n  ],\n  \"relationships\": [\n    {\"spdxElementId\": \"SPDXRef-DOCUMENT\", \"relationshipType\": \"DESCRIBES\", \"relatedSpdxElement\": \"SPDXRef-posenc\"}"
  for (i = 1; i <= NR; ++i) {
    printf ",\n    {\"spdxElementId\": \"SPDXRef-posenc\", \"relationshipType\": \"DEPENDS_ON\", \"relatedSpdxElement\": \"SPDXRef-%s\"}", ids[i]
  }
  for (i = 1; i <= count; ++i) {
    split(line[i], part, " ")
    printf ",\n    {\"spdxElementId\": \"SPDXRef-posenc\", \"relationshipType\": \"CONTAINS\", \"relatedSpdxElement\": \"SPDXRef-File-%s\"}", part[2]
  }
  printf "\n  ]\n}\n"
}' "$installed"
rm -f "$installed" "$listed"
