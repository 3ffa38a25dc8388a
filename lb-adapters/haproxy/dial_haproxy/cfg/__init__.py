"""What an administrator's haproxy.cfg says, and which of its lines DIAL needs changed.

From text to findings: :mod:`~dial_haproxy.cfg.words`, :mod:`~dial_haproxy.cfg.lines` and
:mod:`~dial_haproxy.cfg.sections` read; :mod:`~dial_haproxy.cfg.process` looks at the socket,
:mod:`~dial_haproxy.cfg.service` at the backend, :mod:`~dial_haproxy.cfg.log` at what its
frontends log; :mod:`~dial_haproxy.cfg.check` puts all of it together, and
:mod:`~dial_haproxy.cfg.running` compares the files with what runs.
"""
