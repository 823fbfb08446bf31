#!/bin/sh
# A backend that needs no network: the first sentences of a text stand for its summary. The file is named by the node before.
set -eu
file=${FERRATA_CONTEXT_tool_output:?the node before names no file}
[ -z "${FERRATA_DIGEST_DELAY:-}" ] || sleep "$FERRATA_DIGEST_DELAY"
# Headings, tables, code and quotes are no sentences.
awk '/^```/ { code = !code; next } code || /^[#|>-]/ || /^[[:space:]]*$/ { next } { print }' "$file" |
    tr '\n' ' ' |
    awk '{
        rest = $0; n = 0; text = ""
        while (n < 2 && match(rest, /[.!?]( |$)/)) {
            text = text substr(rest, 1, RSTART) " "; rest = substr(rest, RSTART + RLENGTH); n++
        }
        if (n == 0) text = substr(rest, 1, 300)
        print text
    }'
