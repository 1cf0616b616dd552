package main

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// By default this client asks once in five seconds who leads: that, and no broker, would be measured.
	askAgain  = 10 * time.Millisecond
	sendAgain = 10 * time.Millisecond
	patience  = time.Minute
	// After what happened: so long until it is over, if nothing was felt of it; and so long without a longer gap.
	feltWithin, isOver = 3 * time.Second, 2 * time.Second
	shortGap           = 500 * time.Millisecond
)

// The node that leads the first partition of the topic.
func leader(address, topic string) any {
	return map[string]int32{"leader": firstOf(kadm.NewClient(connect(address)), topic).Leader}
}

func firstOf(client *kadm.Client, topic string) kadm.PartitionDetail {
	topics, err := client.ListTopics(background, topic)
	must(err)
	must(topics.Error())
	return topics[topic].Partitions[0]
}

// Waits until each partition has a leader, and all its replicas are in sync.
func settled(address, topic string, partitions int) any {
	client, begun := kadm.NewClient(connect(address)), time.Now()
	for {
		whole := 0
		topics, err := client.ListTopics(background, topic)
		if err == nil {
			for _, of := range topics[topic].Partitions {
				if of.Err == nil && of.Leader >= 0 && len(of.ISR) == len(of.Replicas) {
					whole++
				}
			}
		}
		if whole == partitions {
			return map[string]float64{"seconds": time.Since(begun).Seconds()}
		}
		if time.Since(begun) > 2*patience {
			must(fmt.Errorf("%d of %d partitions of %s have a leader and all replicas: %v", whole, partitions, topic, err))
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// A record into each partition.
func touch(address, topic string, partitions int) any {
	client, begun := connect(address), time.Now()
	for n := range partitions {
		record := &kgo.Record{Topic: topic, Partition: int32(n), Value: []byte("touched")}
		client.Produce(background, record, func(_ *kgo.Record, err error) { must(err) })
	}
	must(client.Flush(background))
	return map[string]float64{"seconds": time.Since(begun).Seconds()}
}

func drop(address, topic string) any {
	client, begun := kadm.NewClient(connect(address)), time.Now()
	answers, err := client.DeleteTopics(background, topic)
	must(err)
	must(answers.Error())
	return map[string]float64{"seconds": time.Since(begun).Seconds()}
}

// Makes another replica the preferred one, if it is not, and elects it: as Kafka's own tools do.
func prefer(address, topic string, node int) any {
	client, begun := kadm.NewClient(connect(address)), time.Now()
	replicas := firstOf(client, topic).Replicas
	at := slices.Index(replicas, int32(node))
	replicas[0], replicas[at] = replicas[at], replicas[0]
	var order kadm.AlterPartitionAssignmentsReq
	order.Assign(topic, 0, replicas)
	ordered, err := client.AlterPartitionAssignments(background, order)
	must(err)
	must(ordered.Error())
	of := kadm.TopicsSet{}
	of.Add(topic, 0)
	for time.Since(begun) < patience {
		// Refused until the order is known.
		if _, err = client.ElectLeaders(background, kadm.ElectPreferredReplica, of); err == nil && firstOf(client, topic).Leader == int32(node) {
			return map[string]float64{"seconds": time.Since(begun).Seconds()}
		}
		time.Sleep(20 * time.Millisecond)
	}
	must(fmt.Errorf("node %d does not lead %s: %v", node, topic, err))
	return nil
}

// One record after the other, each once the one before is acknowledged. A line on the input says that something happens
// now; of what came from then on it tells the longest time between two acknowledgements.
func gap(address, topic string, bytes int) any {
	client := connect(address, kgo.MetadataMinAge(askAgain), kgo.RetryBackoffFn(func(int) time.Duration { return sendAgain }))
	var happened atomic.Int64
	begun := time.Now()
	go func() {
		_, err := bufio.NewReader(os.Stdin).ReadString('\n')
		must(err)
		happened.Store(int64(time.Since(begun)))
	}()
	value := make([]byte, bytes)
	var before, after, lastShort time.Duration
	failed, count := 0, 0
	last := time.Duration(0)
	for {
		err := client.ProduceSync(background, &kgo.Record{Topic: topic, Value: value}).FirstErr()
		now, at := time.Since(begun), time.Duration(happened.Load())
		if now > 10*patience || (at > 0 && now-at > 2*patience) {
			must(fmt.Errorf("no end in %v, %d records: %v", now, count, err))
		}
		if err != nil {
			failed++
			continue
		}
		if count++; count == 1 {
			fmt.Fprintln(os.Stderr, "goes on")
		}
		taken := now - last
		switch {
		case count < 100:
		case at == 0:
			before = max(before, taken)
		default:
			after = max(after, taken)
		}
		if taken > shortGap {
			lastShort = now
		}
		last = now
		if at > 0 && now-at > feltWithin && now-max(at, lastShort) > isOver {
			break
		}
	}
	return map[string]float64{
		"gap_ms": after.Seconds() * 1e3, "quiet_gap_ms": before.Seconds() * 1e3, "refused": float64(failed), "records": float64(count),
	}
}
