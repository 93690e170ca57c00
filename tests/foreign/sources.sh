# Fetch and unpack the upstream source of a Debian package into ./source, by the sources that this machine's apt has:
# sources.sh PACKAGE. Nothing of the machine's own state of apt is changed.
set -e
here=$(pwd)
mkdir -p apt/parts apt/lists/partial apt/cache/archives/partial
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
    [ -f "$file" ] && grep -q debian "$file" || continue
    case $file in
        *.sources) sed 's/^Types:.*/Types: deb-src/' "$file" > "apt/parts/$(basename "$file")" ;;
        *) sed -n 's/^deb /deb-src /p' "$file" > "apt/parts/$(basename "$file" .list).list" ;;
    esac
done
options="-o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts=$here/apt/parts -o Dir::State::lists=$here/apt/lists
 -o Dir::Cache=$here/apt/cache -o APT::Sandbox::User=root -q"
# The options are words, to be split.
# shellcheck disable=SC2086
apt-get $options update
# shellcheck disable=SC2086
apt-get $options source --download-only "$1"
mkdir -p unpacked
tar -xf "$(ls "$1"_*.orig.tar.* | head -n 1)" -C unpacked --strip-components=1
mv unpacked source
rm -rf apt
