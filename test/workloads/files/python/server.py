"""Serves its number of requests so far, which it keeps in a database."""
import http.server
import signal
import sqlite3
import threading

db = sqlite3.connect("/data/requests.db")
db.execute("PRAGMA journal_mode=WAL")
db.execute("CREATE TABLE IF NOT EXISTS requests (at TIMESTAMP DEFAULT CURRENT_TIMESTAMP)")
db.commit()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        db.execute("INSERT INTO requests DEFAULT VALUES")
        db.commit()
        count = db.execute("SELECT count(*) FROM requests").fetchone()[0]
        print("request", count, flush=True)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(count).encode())


server = http.server.HTTPServer(("", 8080), Handler)
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
server.serve_forever()
print("integrity", db.execute("PRAGMA integrity_check").fetchone()[0], flush=True)
db.close()
