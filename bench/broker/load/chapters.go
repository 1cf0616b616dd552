package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Ours and Kafka's answers have at most so many bytes of a partition; it is the client's default.
const partitionBytes = 1 << 20

// So many records evenly over all partitions at once, each in turn; bytes that nobody could compress.
func spread(address, topic string, partitions, records, bytes int) any {
	// Batches of what came within the linger: over very many partitions each would be one record else.
	awaitPartitions(address, topic, partitions)
	client := connect(address, kgo.ProducerBatchMaxBytes(900_000), kgo.ProduceRequestTimeout(5*time.Minute),
		kgo.ProducerLinger(100*time.Millisecond), kgo.MaxBufferedRecords(400_000), kgo.RecordDeliveryTimeout(20*time.Minute))
	values := make([]byte, bytes+(1<<20))
	drawn := rand.NewChaCha8([32]byte{})
	drawn.Read(values)
	begun := time.Now()
	for n := range records {
		at := n * 37 % (1 << 20)
		record := &kgo.Record{Topic: topic, Partition: int32(n % partitions), Value: values[at : at+bytes]}
		client.Produce(background, record, func(_ *kgo.Record, err error) { must(err) })
	}
	must(client.Flush(background))
	return map[string]float64{"records_per_s": float64(records) / time.Since(begun).Seconds()}
}

// Kafka answers before all of them are there.
func awaitPartitions(address, topic string, partitions int) {
	client := kadm.NewClient(connect(address))
	defer client.Close()
	for {
		topics, err := client.ListTopics(background, topic)
		must(err)
		led := 0
		for _, partition := range topics[topic].Partitions {
			if partition.Leader >= 0 && partition.Err == nil {
				led++
			}
		}
		if led == partitions {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func from(partitions ...int32) map[int32]kgo.Offset {
	offsets := map[int32]kgo.Offset{}
	for _, partition := range partitions {
		offsets[partition] = kgo.NewOffset().At(0)
	}
	return offsets
}

// So many records of one partition, by a consumer: its first second has what it takes to connect.
func one(address, topic string, partition, records int) any {
	begun := time.Now()
	client := connect(address, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from(int32(partition))}))
	bytes := consume(client, records)
	return map[string]float64{"mb_per_s": float64(bytes) / 1e6 / time.Since(begun).Seconds()}
}

// Some partitions one after the other, so many records of each, a request at a time and no two of them at once: a consumer
// would take longer to change its partition than to read it. The first is not counted.
func walk(address, topic string, first, step, count, recordsEach int) any {
	client := connect(address, kgo.FetchMaxWait(time.Second))
	id, bytes, taken := topicID(client, topic), 0, time.Duration(0)
	for number := range count + 1 {
		begun, next, got := time.Now(), int64(0), 0
		for next < int64(recordsEach) {
			batches := fetch(client, topic, id, int32(first+number*step), next)
			for len(batches) > 0 {
				size := 12 + int(int32be(batches[8:]))
				if size > len(batches) {
					break
				}
				next = int64be(batches) + int64(int32be(batches[23:])) + 1
				batches, got = batches[size:], got+size
			}
		}
		if number > 0 {
			taken, bytes = taken+time.Since(begun), bytes+got
		}
	}
	return map[string]float64{
		"mb_per_s":           float64(bytes) / 1e6 / taken.Seconds(),
		"ms_a_partition":     taken.Seconds() * 1e3 / float64(count),
		"bytes_a_partition":  float64(bytes) / float64(count),
		"partitions_counted": float64(count),
	}
}

func int32be(b []byte) int32 {
	return int32(b[0])<<24 | int32(b[1])<<16 | int32(b[2])<<8 | int32(b[3])
}

func int64be(b []byte) int64 {
	return int64(int32be(b))<<32 | int64(uint32(int32be(b[4:])))
}

func topicID(client *kgo.Client, topic string) [16]byte {
	asked := kmsg.NewPtrMetadataRequest()
	asked.Topics = []kmsg.MetadataRequestTopic{{Topic: &topic}}
	answer, err := asked.RequestWith(background, client)
	must(err)
	return answer.Topics[0].TopicID
}

func fetch(client *kgo.Client, topic string, id [16]byte, partition int32, offset int64) []byte {
	asked := kmsg.NewPtrFetchRequest()
	asked.MaxWaitMillis, asked.MinBytes, asked.MaxBytes, asked.SessionEpoch = 1000, 1, 50<<20, -1
	of := kmsg.NewFetchRequestTopicPartition()
	of.Partition, of.FetchOffset, of.PartitionMaxBytes, of.CurrentLeaderEpoch = partition, offset, partitionBytes, -1
	asked.Topics = []kmsg.FetchRequestTopic{{Topic: topic, TopicID: id, Partitions: []kmsg.FetchRequestTopicPartition{of}}}
	ctx, end := context.WithTimeout(background, time.Minute)
	defer end()
	answer, err := client.SeedBrokers()[0].Request(ctx, asked)
	must(err)
	got := answer.(*kmsg.FetchResponse)
	must(kerr.ErrorForCode(got.ErrorCode))
	must(kerr.ErrorForCode(got.Topics[0].Partitions[0].ErrorCode))
	return got.Topics[0].Partitions[0].RecordBatches
}

// So many records by a group of so many members, from the first that any of them has: what it takes to form the group is
// not counted.
func group(address, topic string, records, members int) any {
	var left, bytes, begun atomic.Int64
	// Each time another: what it has committed is nothing.
	name := fmt.Sprintf("%s-%d", topic, time.Now().UnixNano())
	left.Store(int64(records))
	var done sync.WaitGroup
	ctx, end := context.WithCancel(background)
	defer end()
	for range members {
		client := connect(address, kgo.ConsumeTopics(topic), kgo.ConsumerGroup(name),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
		done.Add(1)
		go func() {
			defer done.Done()
			for ctx.Err() == nil {
				fetches := client.PollFetches(ctx)
				got, count := 0, 0
				fetches.EachRecord(func(record *kgo.Record) { got, count = got+len(record.Value), count+1 })
				if count > 0 {
					begun.CompareAndSwap(0, time.Now().UnixNano())
				}
				bytes.Add(int64(got))
				if left.Add(-int64(count)) <= 0 {
					end()
				}
			}
		}()
	}
	<-ctx.Done()
	taken := float64(time.Now().UnixNano()-begun.Load()) / 1e9
	done.Wait()
	return map[string]float64{"mb_per_s": float64(bytes.Load()) / 1e6 / taken}
}

// Readers, each of a partition of its own from its first offset, for so long or until each has read all of it. How many had.
func behind(address, topic string, readers, recordsEach, seconds int) any {
	var bytes, ended atomic.Int64
	var done sync.WaitGroup
	begun := time.Now()
	ctx, end := context.WithTimeout(background, time.Duration(seconds)*time.Second)
	defer end()
	for reader := range readers {
		done.Add(1)
		go func() {
			defer done.Done()
			client := connect(address, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from(int32(reader))}))
			left := recordsEach
			for left > 0 && ctx.Err() == nil {
				client.PollFetches(ctx).EachRecord(func(record *kgo.Record) {
					left--
					bytes.Add(int64(len(record.Value)))
				})
			}
			if left <= 0 {
				ended.Add(1)
			}
			client.Close()
		}()
	}
	done.Wait()
	return map[string]float64{
		"readers_mb_per_s": float64(bytes.Load()) / 1e6 / time.Since(begun).Seconds(),
		"readers_ended":    float64(ended.Load()),
	}
}
