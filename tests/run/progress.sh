# Progress of long steps on standard error, for ./demo and ./check: sourced by them. One line, rewritten, on a terminal;
# elsewhere a plain line when a step starts, every ten seconds, and when it ends.

program_name=check
progress_every=10  # seconds between plain lines
progress_last=0

[ -t 2 ] && on_terminal=1 || on_terminal=
shopt -s checkwinsize
(:)  # sets COLUMNS

seconds_now() { printf '%s' "${EPOCHREALTIME%[.,]*}"; }

# clock_text SECONDS: 7 -> 0:07, 754 -> 12:34.
clock_text() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }

# say TEXT: a line of its own, in place of the one that is rewritten.
say() {
  printf '%s%s: %s\n' "${on_terminal:+$'\r\e[K'}" "$program_name" "$*" >&2
  progress_last=$(seconds_now)
}

fail() {
  printf '%sgradwire: error: %s\n' "${on_terminal:+$'\r\e[K'}" "$*" >&2
  exit 1
}

# progress TEXT: how far a step is.
progress() {
  local now text="$program_name: $*"
  if [ -n "$on_terminal" ]; then
    printf '\r\e[K%s' "${text:0:$((${COLUMNS:-80} - 1))}" >&2
    return
  fi
  now=$(seconds_now)
  [ $((now - progress_last)) -ge "$progress_every" ] || return 0
  printf '%s\n' "$text" >&2
  progress_last=$now
}

# show_apt LOG: reads what apt-get writes with APT::Status-Fd=1, keeps the rest in LOG.
show_apt() {
  local line kind of percent text
  while IFS= read -r line; do
    case "$line" in
      dlstatus:*|pmstatus:*)
        IFS=: read -r kind of percent text <<<"$line"
        [ "$kind" = dlstatus ] && kind=downloading || kind=unpacking
        progress "packages: $kind, ${percent%%.*} %  (${text})" ;;
      *) printf '%s\n' "$line" >>"$1" ;;
    esac
  done
}

# show_ninja LABEL: reads what ninja prints with NINJA_STATUS="@%f %t " and shows how many of its commands are done, and the
# time that the others will take; prints what compilers say. Its last line says how much was done. Where ninja is silent, as
# while long files compile, the last word is said again.
show_ninja() {
  local line part= text= done=0 total=0 rest start now left
  start=$(seconds_now)
  while true; do
    if IFS= read -r -t "$((progress_every > 0 ? progress_every : 1))" line; then
      line=$part$line part=
    elif [ $? -gt 128 ]; then  # nothing came, or not all of a line
      part+=$line
      [ -z "$text" ] || progress "$text, $(clock_text $(($(seconds_now) - start))) so far"
      continue
    else
      break
    fi
    if [[ "$line" =~ ^@([0-9]+)\ ([0-9]+)\ (.*) ]]; then
      done=${BASH_REMATCH[1]} total=${BASH_REMATCH[2]} rest=${BASH_REMATCH[3]}
      now=$(seconds_now)
      left=
      [ "$done" -lt 10 ] || left=", ETA $(clock_text $(((now - start) * (total - done) / done)))"
      rest=${rest##*/}
      text="$1: compiling $done of $total$left  (${rest%.o})"
      progress "$text"
    elif [[ ! "$line" =~ ^ninja:\ (Entering\ directory|no\ work\ to\ do) ]]; then
      printf '%s%s\n' "${on_terminal:+$'\r\e[K'}" "$line" >&2
    fi
  done
  now=$(seconds_now)
  if [ "$done" -gt 1 ]; then  # one command looks up the commit
    say "$1: $done commands in $(clock_text $((now - start)))"
  else
    say "$1: up to date"
  fi
}
