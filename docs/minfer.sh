# One command for people used to one command. Source it from ~/.bashrc or ~/.zshrc:
#     . path/to/docs/minfer.sh
minfer() {
  case "${1:-}" in
    list | ls | pull | download | resolve | info | rm | verify | gc | import | doctor | daemon) minfer-fetch "$@" ;;
    serve) shift && minfer-serve "$@" ;;
    *) minfer-run "$@" ;;
  esac
}

# Other short forms that some like:
#     alias ask='minfer-run -q smol'
#     explain() { minfer-run -q smol "Explain in one sentence:" "$@"; }

# Completion of commands, flags and cached model names, for the shell that reads this file.
if [ -n "${BASH_VERSION:-}" ]; then _minfer_shell=bash; elif [ -n "${ZSH_VERSION:-}" ]; then _minfer_shell=zsh; fi
if [ -n "${_minfer_shell:-}" ]; then
  for _minfer_tool in run fetch serve; do
    if command -v "minfer-$_minfer_tool" >/dev/null; then
      case "$_minfer_tool" in
        run) eval "$(_MINFER_RUN_COMPLETE=${_minfer_shell}_source minfer-run)" ;;
        fetch) eval "$(_MINFER_FETCH_COMPLETE=${_minfer_shell}_source minfer-fetch)" ;;
        serve) eval "$(_MINFER_SERVE_COMPLETE=${_minfer_shell}_source minfer-serve)" ;;
      esac
    fi
  done
  unset _minfer_tool
fi
unset _minfer_shell
