#!/bin/sh
# Writes what check.dot found as Markdown; with an argument, adds what a person said of it.
set -eu
dir=${FERRATA_CONTEXT_dir:-.}
report=${FERRATA_CONTEXT_report:-target/ferrata-check.md}
case $report in /*) ;; *) report=$dir/$report ;; esac
mkdir -p "$(dirname "$report")"

if [ $# -gt 0 ]; then
    # Running again after a crash must not say it twice.
    line="- a person: $1"
    grep -qxF -- "$line" "$report" || printf '%s\n' "$line" >>"$report"
    echo "$report: $1"
    exit 0
fi

{
    echo "# Check of $(cd "$dir" && pwd)"
    echo
    echo "- run: $FERRATA_RUN"
    # Each branch with its outcome and reason, from parallel.results, a list of JSON objects.
    printf '%s\n' "${FERRATA_CONTEXT_parallel_results:-}" |
        awk '{
            # A quote inside a text is put aside, so that texts end where a quote stands.
            gsub(/\\"/, "\001")
            while (match($0, /"failure_reason":"[^"]*","id":"[^"]*","outcome":"[^"]*"/)) {
                split(substr($0, RSTART, RLENGTH), part, "\"")
                $0 = substr($0, RSTART + RLENGTH)
                gsub("\001", "\"", part[4])
                printf "- %s: %s%s\n", part[8], part[12], (part[4] == "" ? "" : " (" part[4] ")")
            }
        }'
} >"$report.new"
mv "$report.new" "$report"
cat "$report"
