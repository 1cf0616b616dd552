// Load on a broker through franz-go. Prints one JSON object.
//
//	load create ADDR TOPIC PARTITIONS [replicas=N] [SETTING=VALUE ...]
//	load produce ADDR TOPIC PARTITIONS WORKERS CLIENTS SECONDS BYTES
//	load pace ADDR TOPIC RECORDS_PER_SECOND SECONDS BYTES
//	load through ADDR TOPIC RECORDS_PER_SECOND SECONDS BYTES
//	load fill ADDR TOPIC RECORDS BYTES
//	load read ADDR TOPIC RECORDS
//	load follow ADDR TOPIC RECORDS BYTES
//	load spread ADDR TOPIC PARTITIONS RECORDS BYTES
//	load one ADDR TOPIC PARTITION RECORDS
//	load walk ADDR TOPIC FIRST STEP PARTITIONS RECORDS_EACH
//	load group ADDR TOPIC RECORDS MEMBERS
//	load behind ADDR TOPIC READERS RECORDS_EACH SECONDS
//	load leader ADDR TOPIC
//	load settled ADDR TOPIC PARTITIONS
//	load touch ADDR TOPIC PARTITIONS
//	load drop ADDR TOPIC
//	load prefer ADDR TOPIC NODE
//	load gap ADDR TOPIC BYTES
//	load redis ADDR STREAM CONNECTIONS SECONDS BYTES REPLICAS
//	load nats ADDR STREAM CONNECTIONS SECONDS BYTES REPLICAS
//	load etcd ADDR PREFIX CONNECTIONS SECONDS BYTES
//	load relay DELAY_US - LAST_OF_ADDRESS=FILE ...
//
// ADDR may be several, with commas between.
package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const warmUp = time.Second

var background = context.Background()

func main() {
	verb, address, topic, rest := os.Args[1], os.Args[2], os.Args[3], os.Args[4:]
	n := []int{}
	for _, text := range rest {
		if number, err := strconv.Atoi(text); err == nil {
			n = append(n, number)
		}
	}
	var found any
	switch verb {
	case "create":
		found = create(address, topic, n[0], rest[1:])
	case "produce":
		found = produce(address, topic, n[0], n[1], n[2], n[3], n[4])
	case "pace":
		found = pace(address, topic, n[0], n[1], n[2])
	case "through":
		found = through(address, topic, n[0], n[1], n[2])
	case "fill":
		found = fill(address, topic, n[0], n[1])
	case "read":
		found = read(address, topic, n[0])
	case "follow":
		found = follow(address, topic, n[0], n[1])
	case "spread":
		found = spread(address, topic, n[0], n[1], n[2])
	case "one":
		found = one(address, topic, n[0], n[1])
	case "walk":
		found = walk(address, topic, n[0], n[1], n[2], n[3])
	case "group":
		found = group(address, topic, n[0], n[1])
	case "behind":
		found = behind(address, topic, n[0], n[1], n[2])
	case "leader":
		found = leader(address, topic)
	case "settled":
		found = settled(address, topic, n[0])
	case "touch":
		found = touch(address, topic, n[0])
	case "drop":
		found = drop(address, topic)
	case "prefer":
		found = prefer(address, topic, n[0])
	case "redis":
		found = redis(address, topic, n[0], n[1], n[2], n[3])
	case "nats":
		found = natsAdd(address, topic, n[0], n[1], n[2], n[3])
	case "etcd":
		found = etcdPut(address, topic, n[0], n[1], n[2])
	case "relay":
		delay, err := strconv.Atoi(address)
		must(err)
		relay(time.Duration(delay)*time.Microsecond, filesOf(rest))
	case "gap":
		found = gap(address, topic, n[0])
	}
	must(json.NewEncoder(os.Stdout).Encode(found))
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// No linger, no compression: what is measured is the broker.
func connect(address string, options ...kgo.Opt) *kgo.Client {
	ours := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(address, ",")...),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerLinger(0),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MaxBufferedRecords(100_000),
	}
	client, err := kgo.NewClient(append(ours, options...)...)
	must(err)
	return client
}

// Times of operations in ns.
type times struct {
	sync.Mutex
	all []int64
}

func (t *times) add(taken []int64) {
	t.Lock()
	t.all = append(t.all, taken...)
	t.Unlock()
}

// Microseconds at some shares of all.
func (t *times) summary() map[string]float64 {
	slices.Sort(t.all)
	at := func(share float64) float64 {
		if len(t.all) == 0 {
			return 0
		}
		return float64(t.all[int(share*float64(len(t.all)-1))]) / 1e3
	}
	return map[string]float64{"p50_us": at(0.5), "p99_us": at(0.99), "p999_us": at(0.999), "longest_us": at(1)}
}

func with(summary map[string]float64, more map[string]float64) map[string]float64 {
	for name, value := range more {
		summary[name] = value
	}
	return summary
}

// Partitions come in steps that one request may ask for.
func create(address, topic string, partitions int, settings []string) any {
	const step = 5_000
	client := kadm.NewClient(connect(address))
	client.SetTimeoutMillis(120_000)
	configs, replicas := map[string]*string{}, 1
	for _, setting := range settings {
		name, value, _ := strings.Cut(setting, "=")
		if name == "replicas" {
			replicas, _ = strconv.Atoi(value)
			continue
		}
		configs[name] = &value
	}
	begun := time.Now()
	_, err := client.CreateTopic(background, int32(min(partitions, step)), int16(replicas), configs, topic)
	must(err)
	for there := step; there < partitions; there += step {
		grown, err := client.UpdatePartitions(background, min(partitions, there+step), topic)
		must(err)
		must(grown.Error())
	}
	return map[string]float64{"seconds": time.Since(begun).Seconds()}
}

// Workers of as many clients, each with one record in flight, over all partitions in turn.
func produce(address, topic string, partitions, workers, clients, seconds, bytes int) any {
	connections := make([]*kgo.Client, clients)
	for i := range connections {
		connections[i] = connect(address)
	}
	value := make([]byte, bytes)
	var took times
	var done sync.WaitGroup
	var first atomic.Int64
	connected := time.Now()
	begin := connected.Add(warmUp)
	end := begin.Add(time.Duration(seconds) * time.Second)
	for worker := range workers {
		done.Add(1)
		go func() {
			defer done.Done()
			client, mine := connections[worker%clients], []int64{}
			for n := worker; ; n += workers {
				record := &kgo.Record{Topic: topic, Partition: int32(n % partitions), Value: value}
				sent := time.Now()
				if !sent.Before(end) {
					break
				}
				must(client.ProduceSync(background, record).FirstErr())
				if sent.Before(begin) {
					first.Add(1)
				} else {
					mine = append(mine, int64(time.Since(sent)))
				}
			}
			took.add(mine)
		}()
	}
	done.Wait()
	return with(took.summary(), map[string]float64{
		"records_per_s": float64(len(took.all)) / float64(seconds),
		"first_second":  float64(first.Load()),
	})
}

// Calls at its time, however long the one before took: what waits behind a stall counts.
func paced(perSecond, seconds int, call func(n int, due time.Time)) {
	begun := time.Now()
	for n := range perSecond * seconds {
		due := begun.Add(time.Duration(n) * time.Second / time.Duration(perSecond))
		if early := time.Until(due); early > 0 {
			time.Sleep(early)
		}
		call(n, due)
	}
}

func pace(address, topic string, perSecond, seconds, bytes int) any {
	client, value := connect(address), make([]byte, bytes)
	var took times
	paced(perSecond, seconds+1, func(n int, due time.Time) {
		client.Produce(background, &kgo.Record{Topic: topic, Value: value}, func(_ *kgo.Record, err error) {
			must(err)
			if n >= perSecond {
				took.add([]int64{int64(time.Since(due))})
			}
		})
	})
	must(client.Flush(background))
	return took.summary()
}

// From the call that produces a record to the poll that has it.
func through(address, topic string, perSecond, seconds, bytes int) any {
	producer := connect(address)
	consumer := connect(address, kgo.ConsumeTopics(topic), kgo.FetchMaxWait(time.Second))
	var took times
	left := perSecond * (seconds + 1)
	read := make(chan bool)
	go func() {
		for count := 0; count < left; {
			consumer.PollFetches(background).EachRecord(func(record *kgo.Record) {
				count++
				sent := int64(binary.LittleEndian.Uint64(record.Value))
				if count > perSecond {
					took.all = append(took.all, time.Now().UnixNano()-sent)
				}
			})
		}
		close(read)
	}()
	time.Sleep(500 * time.Millisecond)
	paced(perSecond, seconds+1, func(int, time.Time) {
		value := make([]byte, bytes)
		binary.LittleEndian.PutUint64(value, uint64(time.Now().UnixNano()))
		client := producer
		client.Produce(background, &kgo.Record{Topic: topic, Value: value}, func(_ *kgo.Record, err error) { must(err) })
	})
	<-read
	return took.summary()
}

func fill(address, topic string, records, bytes int) any {
	client, value := connect(address, kgo.ProducerBatchMaxBytes(900_000)), make([]byte, bytes)
	begun := time.Now()
	for range records {
		client.Produce(background, &kgo.Record{Topic: topic, Value: value}, func(_ *kgo.Record, err error) { must(err) })
	}
	must(client.Flush(background))
	return map[string]float64{"records_per_s": float64(records) / time.Since(begun).Seconds()}
}

func consume(client *kgo.Client, records int) int {
	bytes := 0
	for records > 0 {
		client.PollFetches(background).EachRecord(func(record *kgo.Record) {
			records--
			bytes += len(record.Value)
		})
	}
	return bytes
}

func reader(address, topic string) *kgo.Client {
	return connect(address, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
}

func read(address, topic string, records int) any {
	client, begun := reader(address, topic), time.Now()
	bytes := consume(client, records)
	return map[string]float64{"mb_per_s": float64(bytes) / 1e6 / time.Since(begun).Seconds()}
}

// Reads what is produced meanwhile.
func follow(address, topic string, records, bytes int) any {
	client, begun := reader(address, topic), time.Now()
	go fill(address, topic, records, bytes)
	got := consume(client, records)
	return map[string]float64{"mb_per_s": float64(got) / 1e6 / time.Since(begun).Seconds()}
}
