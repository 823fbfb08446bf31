#!/bin/sh
# The tools of digest.dot: what is done is told by the node. Each may run again after a crash and does the same then.
set -eu
out=${FERRATA_CONTEXT_out:-target/ferrata-digest}
work=$out/$FERRATA_RUN
lanes=3
mkdir -p "$work"

case $FERRATA_NODE in
list)
    # Patterns are to be expanded, and blanks to separate.
    # shellcheck disable=SC2086
    set -- ${FERRATA_CONTEXT_files:-docs/*.md}
    for file; do
        if [ ! -f "$file" ]; then echo "$file is no file" >&2; exit 1; fi
        printf '%s\n' "$file"
    done >"$work/files.new"
    mv "$work/files.new" "$work/files"
    wc -l <"$work/files" | tr -d ' '
    ;;
take_*)
    lane=${FERRATA_NODE#take_}
    sed -n "$(((FERRATA_VISIT - 1) * lanes + lane))p" "$work/files" | tr -d '\n'
    ;;
keep_*)
    lane=${FERRATA_NODE#keep_}
    number=$(((FERRATA_VISIT - 1) * lanes + lane))
    file=$(sed -n "${number}p" "$work/files")
    eval "summary=\${FERRATA_CONTEXT_response_sum_$lane}"
    words=$(wc -w <"$file" | tr -d ' ')
    {
        printf '%s\t%s\n' "$words" "$file"
        printf '%s\n' "$summary"
    } >"$work/$number.new"
    mv "$work/$number.new" "$work/$number.summary"
    ;;
rank)
    for summary in "$work"/*.summary; do
        printf '%s\t%s\n' "$(head -n 1 "$summary")" "$summary"
    done | sort -t "$(printf '\t')" -k1,1nr -k2,2 >"$work/ranked.new"
    mv "$work/ranked.new" "$work/ranked"
    cut -f 1,2 "$work/ranked"
    ;;
all | best)
    most=1000000
    [ "$FERRATA_NODE" = all ] || most=3
    {
        echo "# Digest"
        head -n "$most" "$work/ranked" | while IFS="$(printf '\t')" read -r words file summary; do
            printf '\n## %s (%s words)\n\n' "$file" "$words"
            tail -n +2 "$summary"
        done
    } >"$out/digest.new"
    mv "$out/digest.new" "$out/digest.md"
    echo "$out/digest.md"
    ;;
*)
    echo "no such node: $FERRATA_NODE" >&2
    exit 1
    ;;
esac
