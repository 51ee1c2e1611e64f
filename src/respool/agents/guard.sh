#!/bin/sh
# Written by `respool install`: starts respool's proxy on port @PORT@, or lets agents go on without it.
#
#   serve   run the proxy; if respool cannot run, forward requests as they come
#   start   the same in the background, unless it runs already
#   hook    as start, for the hook at the start of a session
#   mcp     as start, then the MCP server
#   expand  write an original
#   direct  point agents' settings at their providers again
set -u
PYTHON=@PYTHON@
FOLDER=@FOLDER@
@ENVIRONMENT@

can_run() {
    [ -x "$PYTHON" ] && "$PYTHON" -P -c 'import respool.cli' >/dev/null 2>&1
}

any_python() {
    for name in "$PYTHON" python3 python; do
        if command -v "$name" >/dev/null 2>&1 && "$name" -c 'import ssl, http.server' >/dev/null 2>&1
        then
            command -v "$name"
            return 0
        fi
    done
    return 1
}

quoted() {
    printf '%s' "$1" | sed 's/[]\/.*^$&|[]/\\&/g'
}

# A file that is as `respool install` wrote it gets its former bytes back. In one that was edited
# since, the proxy's address is replaced by the provider's.
direct() {
    [ -f "$FOLDER/direct.tsv" ] || return 0
    while IFS='	' read -r file former written ours theirs; do
        [ -f "$file" ] || continue
        if cmp -s "$file" "$written"; then
            if [ "$former" = - ]; then rm -f "$file"; else cat "$former" >"$file"; fi
        elif grep -qF "$ours" "$file"; then
            sed "s|$(quoted "$ours")|$(quoted "$theirs")|g" "$file" >"$FOLDER/edited" &&
                cat "$FOLDER/edited" >"$file"
            rm -f "$FOLDER/edited"
        fi
    done <"$FOLDER/direct.tsv"
    date >"$FOLDER/direct.log"
}

forward() {
    exec "$python" "$FOLDER/forwarder.py" "$FOLDER/upstreams.json" @PORT@
}

start() {
    [ -x "$PYTHON" ] &&
        "$PYTHON" -P -m respool @SERVE@ --background >/dev/null 2>"$FOLDER/start.log" && return 0
    direct
    python=$(any_python) || return 1
    (forward) </dev/null >/dev/null 2>&1 &
    sleep 1
}

case ${1:-} in
serve)
    can_run && exec "$PYTHON" -P -m respool @SERVE@
    direct
    python=$(any_python) && forward
    exit 1
    ;;
start) start ;;
hook)
    start || echo '{"continue": false, "stopReason": "respool cannot run any more. Its settings were taken back: start again."}'
    ;;
mcp)
    start
    shift
    exec "$PYTHON" -P -m respool mcp "$@"
    ;;
expand)
    shift
    exec "$PYTHON" -P -m respool expand "$@"
    ;;
direct) direct ;;
*)
    echo "usage: $0 serve|start|hook|mcp|expand|direct" >&2
    exit 2
    ;;
esac
