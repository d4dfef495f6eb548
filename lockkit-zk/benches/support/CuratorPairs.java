import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryNTimes;

/**
 * Measures Curator's InterProcessMutex in this process. Reads a command per line, and answers each with one line. Ends
 * with its standard input.
 *
 * <p>Commands: {@code pairs THREADS MILLISECONDS own|hot}, answered by the number of pairs and the nanoseconds that they
 * took; and {@code crowd THREADS}, answered by the nanoseconds in which a lock that is freed serves so many waiters.
 */
final class CuratorPairs {
    private final CuratorFramework client;
    /** Curator's locks belong to a thread. */
    private final ExecutorService threads = Executors.newCachedThreadPool();

    private CuratorPairs(CuratorFramework client) {
        this.client = client;
    }

    public static void main(String[] args) throws Exception {
        int sessionTimeout = Integer.parseInt(args[1]);
        var client = CuratorFrameworkFactory.newClient(args[0], sessionTimeout, 10_000, new RetryNTimes(3, 100));
        client.start();
        client.blockUntilConnected();
        var pairs = new CuratorPairs(client);
        System.out.println("ready");
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(pairs.answer(line.split(" ")));
        }
        System.exit(0);
    }

    private String answer(String[] words) throws Exception {
        int count = Integer.parseInt(words[1]);
        switch (words[0]) {
            case "pairs": return pairs(count, Long.parseLong(words[2]), words[3].equals("own"));
            case "crowd": return crowd(count);
            default: throw new IllegalArgumentException(words[0]);
        }
    }

    private String pairs(int count, long milliseconds, boolean own) throws Exception {
        long start = System.nanoTime();
        long end = start + milliseconds * 1_000_000;
        List<Callable<Long>> loops = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            var mutex = new InterProcessMutex(client, own ? "/curator/own-" + number : "/curator/hot");
            loops.add(() -> {
                long pairs = 0;
                while (System.nanoTime() < end) {
                    mutex.acquire();
                    mutex.release();
                    pairs++;
                }
                return pairs;
            });
        }
        long pairs = 0;
        for (Future<Long> loop : threads.invokeAll(loops)) {
            pairs += loop.get();
        }
        return pairs + " " + (System.nanoTime() - start);
    }

    private String crowd(int count) throws Exception {
        String path = "/curator/crowd";
        var holder = new InterProcessMutex(client, path);
        holder.acquire();
        List<Future<?>> waiters = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            var mutex = new InterProcessMutex(client, path);
            waiters.add(threads.submit(() -> {
                mutex.acquire();
                mutex.release();
                return null;
            }));
        }
        while (client.getChildren().forPath(path).size() <= count) {
            Thread.sleep(10);
        }
        long start = System.nanoTime();
        holder.release();
        for (Future<?> waiter : waiters) {
            waiter.get();
        }
        return Long.toString(System.nanoTime() - start);
    }
}
