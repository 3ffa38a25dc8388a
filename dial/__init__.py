"""DIAL: a user-centric, interference-aware load balancer service.

Terms used throughout, in the words of the field:

service
    The pool of interchangeable machines behind one entry of the load balancer
    (an HAProxy ``backend`` section, an Envoy cluster).
backend
    One member of the pool, one VM of the tenant (an HAProxy ``server``, an Envoy
    endpoint).  The *victim* is a backend whose host is shared with a *neighbour*
    that takes a resource.
weight, share
    The integer that the load balancer is given, and the fraction of the service's
    requests it stands for.
"""

__version__ = "0.1.0"
