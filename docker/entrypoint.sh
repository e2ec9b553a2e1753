#!/bin/sh
# What a container of the image begins with: the course in /course, made once, then the command, there.
set -eu
cd /course

if ! [ -w . ]; then
    owner=$(stat -c %u:%g .)
    echo "mpcourse: /course belongs to user $owner, and this container runs as $(id -u):$(id -g), which may not write" \
        "there: add --user $owner to docker run, or mount a volume, -v mycourse:/course" >&2
    exit 2
fi
# Whom --user names has no home here, and need not have a name. Jupyter asks for the one, torch for the other.
[ -w "${HOME:-/}" ] || HOME=$(mktemp -d)
id -un >/dev/null 2>&1 || export USER=learner LOGNAME=learner
export HOME

[ -e exercises/manifest.toml ] || mpcourse init /course >&2 # the manifest is the last file that it writes
exec "$@"
