"""A run's past written into a time-series database, so that dashboards show it.

Edge: talks to a server. The server is the journal: before a stretch of time is sent, what is there of it
already is asked for and left out. So a back-fill that was killed is simply started again, from any machine,
and nothing is lost or doubled.
"""
