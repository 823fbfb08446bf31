"""Has moto answer one request after the other; Python runs this before it.

Moto answers each request in a thread of its own, looks whether a key is free, and writes some time after: now and then two
conditional writes of one key both succeed. (Seen once in some 500 races of 16 writers on a busy machine.) Behind a lock it
keeps them apart.
"""

import threading

try:
    import werkzeug.serving
except ImportError:
    # A Python without moto, such as the one of the health check.
    pass
else:
    lock = threading.Lock()
    run_simple = werkzeug.serving.run_simple

    def run(host, port, app, *args, **options):
        def locked(environ, start_response):
            with lock:
                return list(app(environ, start_response))

        return run_simple(host, port, locked, *args, **options)

    werkzeug.serving.run_simple = run
