import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.nio.file.*;

/** Serves its number of requests so far, kept in a file, and the limits that it sees. */
public class Main {
	static int requests;

	public static void main(String[] args) throws Exception {
		Path file = Path.of("/data/requests");
		if (Files.exists(file)) requests = Integer.parseInt(Files.readString(file));
		HttpServer server = HttpServer.create(new InetSocketAddress(8080), 0);
		server.createContext("/", exchange -> {
			byte[] answer;
			if (exchange.getRequestURI().getPath().equals("/limits")) {
				Runtime r = Runtime.getRuntime();
				answer = (r.maxMemory() + " " + r.availableProcessors()).getBytes();
			} else {
				System.out.println("request " + ++requests);
				answer = ("" + requests).getBytes();
			}
			exchange.sendResponseHeaders(200, answer.length);
			exchange.getResponseBody().write(answer);
			exchange.close();
		});
		Runtime.getRuntime().addShutdownHook(new Thread(() -> {
			server.stop(1);
			try {
				Files.writeString(file, "" + requests);
			} catch (Exception e) {
				e.printStackTrace();
			}
			System.out.println("saved " + requests);
		}));
		server.start();
	}
}
