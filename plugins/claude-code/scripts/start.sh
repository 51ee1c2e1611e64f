#!/bin/sh
# Starts the proxy of `respool install`, if this session is sent to one. Says nothing: what a hook
# prints at the start of a session becomes part of it.
case ${ANTHROPIC_BASE_URL:-} in
http://127.0.0.1:*) ;;
*) exit 0 ;;
esac
port=${ANTHROPIC_BASE_URL#http://127.0.0.1:}
port=${port%%/*}
for state in "${XDG_STATE_HOME:-$HOME/.local/state}" "$HOME/Library/Application Support"; do
    guard=$state/respool/install/$port/guard.sh
    if [ -f "$guard" ]; then exec /bin/sh "$guard" hook; fi
done
exit 0
