// franz-go.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var value = strings.Repeat(" the same words again and again", 8)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

var saying sync.Mutex

func say(words ...any) {
	saying.Lock()
	defer saying.Unlock()
	fmt.Println(words...)
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func connect(address string, options ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append(options, kgo.SeedBrokers(strings.Split(address, ",")...), kgo.AllowAutoTopicCreation())...)
	must(err)
	return client
}

func number(text string) int {
	parsed, err := strconv.Atoi(text)
	must(err)
	return parsed
}

func produce(address, topic, compression string, first, count, paceMs int) {
	client := connect(address, kgo.ProducerBatchCompression(codecs[compression]))
	for n := first; n < first+count; n++ {
		client.Produce(context.Background(), &kgo.Record{
			Topic:   topic,
			Key:     fmt.Appendf(nil, "k%d", n%20),
			Value:   fmt.Appendf(nil, "%d%s", n, value),
			Headers: []kgo.RecordHeader{{Key: "story", Value: []byte("told")}},
		}, func(record *kgo.Record, err error) {
			must(err)
			say("acked", record.Partition, record.Offset, n)
		})
		time.Sleep(time.Duration(paceMs) * time.Millisecond)
	}
	must(client.Flush(context.Background()))
}

func tell(record *kgo.Record) {
	headers := []string{}
	for _, header := range record.Headers {
		headers = append(headers, header.Key+"="+string(header.Value))
	}
	n, _, _ := strings.Cut(string(record.Value), " ")
	say("read", record.Partition, record.Offset, string(record.Key), strings.Join(headers, ","), n)
}

func consume(address, topic, group, strategy string) {
	balancer := kgo.RangeBalancer()
	if strategy == "cooperative" {
		balancer = kgo.CooperativeStickyBalancer()
	}
	owned := map[int32]bool{}
	changed := func(are bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			for _, partition := range partitions[topic] {
				owned[partition] = are
			}
			sorted := []int{}
			for partition, is := range owned {
				if is {
					sorted = append(sorted, int(partition))
				}
			}
			sort.Ints(sorted)
			say("owns", strings.Trim(fmt.Sprint(sorted), "[]"))
		}
	}
	client := connect(address,
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.Balancers(balancer),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.HeartbeatInterval(300*time.Millisecond),
		kgo.SessionTimeout(6*time.Second),
		kgo.OnPartitionsAssigned(changed(true)),
		kgo.OnPartitionsRevoked(changed(false)),
		kgo.OnPartitionsLost(changed(false)),
	)
	stopping, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for stopping.Err() == nil {
		fetches := client.PollFetches(stopping)
		fetches.EachRecord(tell)
		if !fetches.Empty() {
			if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
				fmt.Fprintln(os.Stderr, "not committed:", err)
			}
		}
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
}

// Goes on whatever it is told, and says it.
func endure(address, topic, kind string, paceMs int) {
	options := []kgo.Opt{kgo.RequiredAcks(kgo.AllISRAcks())}
	if kind != "idempotent" {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client := connect(address, options...)
	stopping, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for n := 0; stopping.Err() == nil; n++ {
		client.Produce(context.Background(), &kgo.Record{
			Topic:   topic,
			Key:     fmt.Appendf(nil, "k%d", n%20),
			Value:   fmt.Appendf(nil, "%d%s", n, value),
			Headers: []kgo.RecordHeader{{Key: "story", Value: []byte("told")}},
		}, func(record *kgo.Record, err error) {
			if err != nil {
				say("failed", n, err)
			} else {
				say("acked", record.Partition, record.Offset, n)
			}
		})
		time.Sleep(time.Duration(paceMs) * time.Millisecond)
	}
	must(client.Flush(context.Background()))
}

// Reads whatever happens, in a group or in none, and says what it is told.
func watch(address, topic, group string) {
	options := []kgo.Opt{
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if group != "none" {
		options = append(options, kgo.ConsumerGroup(group), kgo.DisableAutoCommit(), kgo.SessionTimeout(6*time.Second))
	}
	client := connect(address, options...)
	stopping, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for stopping.Err() == nil {
		fetches := client.PollFetches(stopping)
		fetches.EachError(func(_ string, _ int32, err error) {
			if stopping.Err() == nil {
				say("shown", err)
			}
		})
		fetches.EachRecord(tell)
		if group != "none" && !fetches.Empty() {
			if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
				say("shown", "not committed:", err)
			}
		}
	}
	client.Close()
}

// How long a leader may be awaited.
const patience = 60 * time.Second

// Offsets of all partitions of a topic. While nobody leads a partition Metadata says LEADER_NOT_AVAILABLE of it, Kafka's too
// (KRaftMetadataCache.getPartitionMetadata). kgo asks again for what it produces and consumes, and where ListOffsets itself is
// answered NOT_LEADER_FOR_PARTITION; but a partition of which Metadata says an error is asked of nobody
// (kgo's listOffsetsSharder.shard), and kadm hands that to its caller, at once: in ShardErrors, or in ListedOffset.Err. So whoever
// calls it asks again where the error is retriable (kerr.IsRetriable), as Java's admin client does by itself.
func list(client *kgo.Client, ask func(*kadm.Client) (kadm.ListedOffsets, error)) kadm.ListedOffsets {
	admin, until := kadm.NewClient(client), time.Now().Add(patience)
	for {
		listed, err := ask(admin)
		if err == nil {
			err = listed.Error()
		}
		if err == nil {
			return listed
		}
		if !isRetriable(err) || time.Now().After(until) {
			must(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// Whether all of it is.
func isRetriable(err error) bool {
	var shards *kadm.ShardErrors
	if !errors.As(err, &shards) {
		return kerr.IsRetriable(err)
	}
	for _, shard := range shards.Errs {
		if !kerr.IsRetriable(shard.Err) {
			return false
		}
	}
	return true
}

func read(address, topic string) {
	client := connect(address, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ends := list(client, func(admin *kadm.Client) (kadm.ListedOffsets, error) {
		return admin.ListEndOffsets(context.Background(), topic)
	})
	left := int64(0)
	ends.Each(func(end kadm.ListedOffset) { left += end.Offset })
	for left > 0 {
		client.PollFetches(context.Background()).EachRecord(func(record *kgo.Record) {
			tell(record)
			left--
		})
	}
}

func offsetAt(address, topic string, ms int) {
	list(connect(address), func(admin *kadm.Client) (kadm.ListedOffsets, error) {
		return admin.ListOffsetsAfterMilli(context.Background(), int64(ms), topic)
	}).Each(func(at kadm.ListedOffset) { say("at", at.Partition, at.Offset) })
}

func unknown(address, topic string) {
	client := connect(address, kgo.UnknownTopicRetries(1))
	say("refused", client.ProduceSync(context.Background(), &kgo.Record{Topic: topic}).FirstErr())
}

func transact(address string) {
	say("refused", connect(address, kgo.TransactionalID("first")).BeginTransaction())
}

func main() {
	verb, at := os.Args[1], os.Args[2:]
	switch verb {
	case "produce":
		produce(at[0], at[1], at[2], number(at[3]), number(at[4]), number(at[5]))
	case "consume":
		consume(at[0], at[1], at[2], at[3])
	case "endure":
		endure(at[0], at[1], at[2], number(at[3]))
	case "watch":
		watch(at[0], at[1], at[2])
	case "read":
		read(at[0], at[1])
	case "offset-at":
		offsetAt(at[0], at[1], number(at[2]))
	case "unknown":
		unknown(at[0], at[1])
	case "transact":
		transact(at[0])
	}
}
