"""``mlw completion``: print the completion script for a shell. ``completer`` finds suggestions."""

from __future__ import annotations

import sys

import click

from . import render
from .options import global_options

# Each script calls `mlw` with the words up to the cursor and reads one suggestion per line from its output; see
# ``completer.complete``.
_SCRIPTS = {
    "bash": """\
_mlw_completion() {
    local IFS=$'\\n' answer
    answer=$(_MLW_COMPLETE=bash "${1/#\\~/$HOME}" "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    COMPREPLY=()
    case $answer in
        $'\\t'file) compopt -o default 2>/dev/null ;;
        $'\\t'dir) compopt -o dirnames 2>/dev/null ;;
        *) set -f; COMPREPLY=($answer); set +f ;;
    esac
}
complete -o nosort -F _mlw_completion mlw 2>/dev/null || complete -F _mlw_completion mlw
""",
    "zsh": """\
#compdef mlw
_mlw_completion() {
    local line word
    local -a answer described
    answer=("${(@f)$(_MLW_COMPLETE=zsh ${~words[1]} "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    case $answer[1] in
        $'\\tfile') _files; return ;;
        $'\\tdir') _files -/; return ;;
        '') return 1 ;;
    esac
    for line in $answer; do
        word=${${line%%$'\\t'*}//:/\\\\:}
        line=${line#*$'\\t'}
        described+=("$word${line:+:$line}")
    done
    _describe -V mlw described
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _mlw_completion "$@"
else
    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
    compdef _mlw_completion mlw
fi
""",
    "fish": """\
function __mlw_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l answer (env _MLW_COMPLETE=fish $words "$current" 2>/dev/null)
    switch "$answer[1]"
        case \\tfile
            __fish_complete_path "$current"
        case \\tdir
            __fish_complete_directories "$current"
        case '*'
            printf '%s\\n' $answer
    end
end
complete -c mlw -f -k -a '(__mlw_complete)'
""",
}
SHELLS = tuple(_SCRIPTS)
_INSTALL_HINTS = {
    "bash": 'add to ~/.bashrc:  eval "$(mlw completion bash)"',
    "zsh": 'add to ~/.zshrc:  eval "$(mlw completion zsh)"',
    "fish": "mlw completion fish > ~/.config/fish/completions/mlw.fish",
}


@click.command(epilog="Example: mlw completion bash >> ~/.bashrc")
@click.argument("shell", type=click.Choice(SHELLS))
@global_options
def completion(shell: str) -> None:
    """Print the completion script for a shell."""
    render.write_bytes(_SCRIPTS[shell].encode())
    if render.is_terminal(sys.stdout):
        render.message(f"hint: {_INSTALL_HINTS[shell]}")
