import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.Comparator;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.CreateMode;

/**
 * Curator's locks at the command of a test: each line is {@code number owner command…}, each answer {@code number
 * text}. Ends with its standard input.
 *
 * <p>Commands: {@code acquire mutex|read|write MILLISECONDS PATH}; {@code downgrade PATH}, which takes the read lock
 * while the owner holds the write lock; {@code release}, which gives back the lock that was taken first; and {@code storm
 * mutex|rw MILLISECONDS FOLDER PATH}, which locks over and over and leaves a file in FOLDER for as long as it holds the
 * lock.
 */
final class CuratorLocks {
    private final CuratorFramework client;
    /** Curator's locks belong to a thread, so each owner has its own. */
    private final Map<String, Owner> owners = new ConcurrentHashMap<>();

    private CuratorLocks(CuratorFramework client) {
        this.client = client;
    }

    public static void main(String[] args) throws Exception {
        int sessionTimeout = Integer.parseInt(args[1]);
        var client = CuratorFrameworkFactory.newClient(args[0], sessionTimeout, 10_000, new RetryNTimes(3, 100));
        client.start();
        client.blockUntilConnected();
        say("ready");
        var locks = new CuratorLocks(client);
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", 3);
            locks.owners.computeIfAbsent(words[1], name -> locks.new Owner()).obey(words[0], words[2]);
        }
        System.exit(0);
    }

    private static synchronized void say(String text) {
        System.out.println(text);
    }

    private InterProcessLock lock(String kind, String path) {
        switch (kind) {
            case "mutex": return new InterProcessMutex(client, path);
            case "read": return new InterProcessReadWriteLock(client, path).readLock();
            case "write": return new InterProcessReadWriteLock(client, path).writeLock();
            default: throw new IllegalArgumentException(kind);
        }
    }

    private final class Owner {
        private final ExecutorService thread = Executors.newSingleThreadExecutor();
        /** How to give back what is held, in the order in which it was taken. */
        private final Queue<AutoCloseable> held = new ArrayDeque<>();

        void obey(String number, String command) {
            thread.execute(() -> {
                try {
                    say(number + " " + answer(command));
                } catch (Throwable error) {
                    say(number + " " + error);
                }
            });
        }

        private String answer(String command) throws Exception {
            String[] words = command.split(" ", 4);
            switch (words[0]) {
                case "acquire": {
                    var lock = lock(words[1], words[3]);
                    if (!lock.acquire(Long.parseLong(words[2]), TimeUnit.MILLISECONDS)) {
                        return "timeout";
                    }
                    held.add(lock::release);
                    return "acquired";
                }
                case "downgrade":
                    held.add(downgrade(words[1]));
                    return "downgraded";
                case "release":
                    held.remove().close();
                    return "released";
                case "storm": {
                    String[] places = words[3].split(" ", 2);
                    return storm(words[1], Long.parseLong(words[2]), Path.of(places[0]), places[1]);
                }
                default:
                    throw new IllegalArgumentException(command);
            }
        }

        /**
         * Takes the read lock under the write lock, as Curator does since 5.5 (CURATOR-621): its node is not sequential
         * and has the number of the write lock's node, which is the first one. Older classes make a sequential node.
         */
        private AutoCloseable downgrade(String path) throws Exception {
            String number = client.getChildren().forPath(path).stream()
                .filter(node -> node.contains("__WRIT__"))
                .map(node -> node.substring(node.lastIndexOf('_') + 1))
                .min(Comparator.naturalOrder())
                .orElseThrow();
            String read = client.create().withProtection().withMode(CreateMode.EPHEMERAL)
                .forPath(path + "/__READ__" + number);
            return () -> client.delete().guaranteed().forPath(read);
        }

        /** Answers how often it held the lock, and how often it was not alone where it had to be. */
        private String storm(String kind, long milliseconds, Path folder, String path) throws Exception {
            var random = ThreadLocalRandom.current();
            long grants = 0;
            long violations = 0;
            long end = System.nanoTime() + milliseconds * 1_000_000;
            while (System.nanoTime() < end) {
                boolean exclusive = kind.equals("mutex") || random.nextInt(4) == 0;
                var lock = lock(kind.equals("mutex") ? kind : exclusive ? "write" : "read", path);
                if (!lock.acquire(random.nextBoolean() ? 5_000 : random.nextInt(20), TimeUnit.MILLISECONDS)) {
                    continue;
                }
                grants++;
                violations += witness(folder, exclusive, random.nextInt(1_000)) ? 0 : 1;
                if (exclusive && kind.equals("rw") && random.nextBoolean()) {
                    var read = downgrade(path);
                    lock.release();
                    // Long enough for a waiter to hear of the release.
                    violations += witness(folder, false, 10_000) ? 0 : 1;
                    read.close();
                } else {
                    lock.release();
                }
            }
            return grants + " " + violations;
        }

        private boolean witness(Path folder, boolean exclusive, int microseconds) throws Exception {
            long id = ThreadLocalRandom.current().nextLong();
            var mine = folder.resolve((exclusive ? "exclusive-" : "shared-") + "java-" + id);
            Files.createFile(mine);
            boolean alone;
            try (var files = Files.list(folder)) {
                alone = files.allMatch(file -> file.equals(mine)
                    || !exclusive && file.getFileName().toString().startsWith("shared-"));
            }
            TimeUnit.MICROSECONDS.sleep(microseconds);
            Files.delete(mine);
            return alone;
        }
    }
}
